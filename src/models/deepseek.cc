// DeepSeek-V2 and V3 (R1, Kimi-K2): multi-head latent attention, and MoE layers with many small
// experts and shared ones. Reports: arXiv:2405.04434, arXiv:2412.19437, arXiv:2507.20534.
// Reference: transformers, models/deepseek_v2 and models/deepseek_v3.
#include <cmath>
#include <string>

#include "models/decoder.h"
#include "models/expert_groups.h"
#include "models/families.h"

namespace tokamak {
namespace {

int32_t Dim(ConfigReader& reader, std::string_view name) { return reader.Int(name, kHeadDims); }

nn::MlaConfig ParseLatentAttention(ConfigReader& reader, const DecoderConfig& c) {
  nn::MlaConfig mla;
  mla.hidden_size = c.hidden_size;
  mla.num_heads = c.attention.num_heads;
  mla.bias = c.attention.qkv_bias;
  mla.kv_lora_rank = Dim(reader, "kv_lora_rank");
  mla.rope_dim = Dim(reader, "qk_rope_head_dim");
  mla.nope_dim = Dim(reader, "qk_nope_head_dim");
  mla.value_dim = Dim(reader, "v_head_dim");
  // Null means no query latents.
  if (!reader.IsNull("q_lora_rank")) mla.q_lora_rank = Dim(reader, "q_lora_rank");
  // All heads have their own keys.
  reader.ExpectOrAbsent("num_key_value_heads", int64_t{mla.num_heads});
  const int32_t key_dim = mla.nope_dim + mla.rope_dim;
  // transformers also writes these.
  reader.ExpectOrAbsent("head_dim", JsonValue(int64_t{mla.rope_dim}));
  reader.ExpectOrAbsent("qk_head_dim", JsonValue(int64_t{key_dim}));
  mla.scale =
      static_cast<float>(c.ropes.front().score_factor / std::sqrt(static_cast<double>(key_dim)));
  return mla;
}

// Reads what V2 and V3 share and finds the MoE layers.
void ParseExperts(ConfigReader& reader, int64_t first_dense, int64_t shared, DecoderConfig& c) {
  nn::MoeShape& moe = c.moe;
  moe.hidden_size = c.hidden_size;
  moe.intermediate_size = reader.Int("moe_intermediate_size", kIntermediateSizes);
  moe.activation = c.mlp.activation;
  if (reader.IsNull("n_shared_experts")) shared = 0;
  moe.shared_intermediate_size =
      moe.intermediate_size * reader.IntOr("n_shared_experts", shared, NonNegative(1024));
  moe.names.shared = "shared_experts";
  const int64_t dense = reader.IntOr("first_k_dense_replace", first_dense, NonNegative(10000));
  const int64_t step = reader.IntOr("moe_layer_freq", 1, Positive(10000));
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    c.layers[i].experts = index >= dense && index % step == 0;
  }
  // For training only.
  reader.Ignore({"output_router_logits", "aux_loss_alpha", "router_aux_loss_coef", "seq_aux",
                 "pretraining_tp", "ep_size"});
}

RouterConfig ParseRouter(ConfigReader& reader) {
  RouterConfig router;
  router.num_experts = reader.Int("n_routed_experts", Positive(1024));
  router.top_k = reader.Int("num_experts_per_tok", Positive(router.num_experts));
  return router;
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
  nn::MoeShape& moe = c.moe;
  moe.router = ParseRouter(reader);
  moe.router.scale = static_cast<float>(reader.NumberOr("routed_scaling_factor", 1));
  reader.ExpectOrAbsent("scoring_func", "softmax");
  reader.ExpectOrAbsent("mlp_bias", false);
  const std::string method = reader.StringOr("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    ParseExpertGroups(reader, 1, 1, moe.router);
  } else if (method == "greedy") {
    reader.Ignore({"n_group", "topk_group"});
  } else {
    reader.Fail("topk_method", "\"" + method +
                                   "\" is not supported; known: greedy, "
                                   "group_limited_greedy");
  }
  reader.ExpectOrAbsent("norm_topk_prob", false);  // the reference ignores it, the authors use it
  ParseExperts(reader, /*first_dense=*/0, /*shared=*/2, c);
  return reader.Finish(c);
}

Result<DecoderConfig> ParseDeepseekV3(ConfigReader reader) {
  DecoderConfig c = ParseCommon(reader);
  if (!reader.BoolOr("rope_interleave", true)) c.ropes.front().style = RopeStyle::kHalfSplit;
  nn::MoeShape& moe = c.moe;
  moe.router = ParseRouter(reader);
  moe.router.score = RouterConfig::Score::kSigmoid;
  moe.router.group_score = RouterConfig::GroupScore::kTwoBest;
  moe.router.normalize = reader.BoolOr("norm_topk_prob", true);
  moe.router.scale = static_cast<float>(reader.NumberOr("routed_scaling_factor", 2.5));
  moe.score_correction_bias = true;
  ParseExpertGroups(reader, 8, 4, moe.router);
  reader.ExpectOrAbsent("scoring_func", "sigmoid");
  reader.ExpectOrAbsent("topk_method", "noaux_tc");
  ParseExperts(reader, /*first_dense=*/3, /*shared=*/1, c);
  // transformers writes the second name since version 5.
  const char* drafts =
      reader.Has("num_nextn_predict_layers") ? "num_nextn_predict_layers" : "num_mtp_layers";
  c.mtp_layers = reader.IntOr(drafts, 1, NonNegative(16));
  reader.Ignore({"num_nextn_predict_layers", "num_mtp_layers"});
  return reader.Finish(c);
}

}  // namespace tokamak
