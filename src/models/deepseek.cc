// DeepSeek-V2 and V3 (R1, Kimi-K2): multi-head latent attention, and MoE layers with many small
// experts and shared ones. Reports: arXiv:2405.04434, arXiv:2412.19437, arXiv:2507.20534.
// Reference: transformers, models/deepseek_v2 and models/deepseek_v3.
#include <cmath>
#include <string>

#include "models/families.h"
#include "models/fields.h"

namespace tokamak {
namespace {

nn::MlaConfig ParseLatentAttention(ConfigReader& reader, const DecoderConfig& c) {
  nn::MlaConfig mla;
  mla.hidden_size = c.hidden_size;
  mla.num_heads = c.attention.num_heads;
  mla.bias = c.attention.qkv_bias;
  mla.kv_lora_rank = reader.Int("kv_lora_rank", kHeadDims);
  mla.rope_dim = reader.Int("qk_rope_head_dim", kHeadDims);
  mla.nope_dim = reader.Int("qk_nope_head_dim", kHeadDims);
  mla.value_dim = reader.Int("v_head_dim", kHeadDims);
  // Null means no query latents.
  if (!reader.IsNull("q_lora_rank")) mla.q_lora_rank = reader.Int("q_lora_rank", kHeadDims);
  // All heads have their own keys.
  reader.ExpectOrAbsent("num_key_value_heads", mla.num_heads);
  const int32_t key_dim = mla.nope_dim + mla.rope_dim;
  // transformers also writes these.
  reader.ExpectOrAbsent("head_dim", mla.rope_dim);
  reader.ExpectOrAbsent("qk_head_dim", key_dim);
  mla.scale =
      static_cast<float>(c.ropes.front().score_factor / std::sqrt(static_cast<double>(key_dim)));
  return mla;
}

// Reads what V2 and V3 share.
void ParseDeepseekExperts(ConfigReader& reader, int32_t first_dense, int32_t shared,
                          DecoderConfig& c) {
  ParseExperts(reader, c, "n_routed_experts", "moe_intermediate_size");
  if (reader.IsNull("n_shared_experts")) shared = 0;
  c.moe.shared_intermediate_size =
      c.moe.intermediate_size * reader.IntOr("n_shared_experts", shared, NonNegative(1024));
  c.moe.names.shared = "shared_experts";
  const int32_t dense = reader.IntOr("first_k_dense_replace", first_dense, NonNegative(10000));
  const int32_t step = reader.IntOr("moe_layer_freq", 1, Positive(10000));
  SetExperts(c, [=](int32_t i) { return i >= dense && i % step == 0; });
  // For training only.
  reader.Ignore({"aux_loss_alpha", "seq_aux", "pretraining_tp", "ep_size"});
}

DecoderConfig ParseCommon(ConfigReader& reader) {
  DecoderConfig c = ParseDecoder(reader, {.head_dim = "qk_rope_head_dim"});
  c.ropes.front().style = RopeStyle::kInterleaved;
  c.layer = [mla = ParseLatentAttention(reader, c)](const LayerBuilder& b) {
    return PreNorm{b.Norm("input_layernorm"), b.LatentAttention("self_attn", mla),
                   b.Norm("post_attention_layernorm"), b.FeedForward("mlp")};
  };
  return c;
}

}  // namespace

Result<DecoderConfig> ParseDeepseekV2(ConfigReader reader) {
  DecoderConfig c = ParseCommon(reader);
  ParseDeepseekExperts(reader, /*first_dense=*/0, /*shared=*/2, c);
  c.moe.router.scale = static_cast<float>(reader.NumberOr("routed_scaling_factor", 1));
  reader.ExpectOrAbsent("scoring_func", "softmax");
  reader.ExpectOrAbsent("mlp_bias", false);
  const std::string method = reader.StringOr("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    ParseExpertGroups(reader, 1, 1, c.moe.router);
  } else if (method == "greedy") {
    reader.Ignore({"n_group", "topk_group"});
  } else {
    reader.Fail("topk_method", "\"" + method +
                                   "\" is not supported; known: greedy, "
                                   "group_limited_greedy");
  }
  reader.ExpectOrAbsent("norm_topk_prob", false);  // the reference ignores it, the authors use it
  return reader.Finish(c);
}

Result<DecoderConfig> ParseDeepseekV3(ConfigReader reader) {
  DecoderConfig c = ParseCommon(reader);
  if (!reader.BoolOr("rope_interleave", true)) c.ropes.front().style = RopeStyle::kHalfSplit;
  ParseDeepseekExperts(reader, /*first_dense=*/3, /*shared=*/1, c);
  ParseSigmoidRouter(reader, 2.5, 8, 4, c.moe);
  reader.ExpectOrAbsent("scoring_func", "sigmoid");
  reader.ExpectOrAbsent("topk_method", "noaux_tc");
  // transformers writes the second name since version 5.
  const char* drafts =
      reader.Has("num_nextn_predict_layers") ? "num_nextn_predict_layers" : "num_mtp_layers";
  c.mtp_layers = reader.IntOr(drafts, 1, NonNegative(16));
  reader.Ignore({"num_nextn_predict_layers", "num_mtp_layers"});
  return reader.Finish(c);
}

}  // namespace tokamak
