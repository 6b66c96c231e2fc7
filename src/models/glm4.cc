// GLM-4 (0414), and the MoE models GLM-4.5 and 4.6. Both rotate half of each head: GLM-4 in
// interleaved pairs, the MoE models in split halves. Reports: arXiv:2406.12793, arXiv:2508.06471.
// Reference: transformers, models/glm4 and models/glm4_moe.
#include "models/decoder.h"
#include "models/expert_groups.h"
#include "models/families.h"

namespace tokamak {
namespace {

constexpr nn::RopeDefaults kHalf = {.partial_rotary_factor = 0.5};

RouterConfig ParseRouter(ConfigReader& reader) {
  RouterConfig router = {.score = RouterConfig::Score::kSigmoid,
                         .group_score = RouterConfig::GroupScore::kTwoBest};
  router.num_experts = reader.Int("n_routed_experts", Positive(1024));
  router.top_k = reader.Int("num_experts_per_tok", Positive(router.num_experts));
  router.normalize = reader.BoolOr("norm_topk_prob", true);
  router.scale = static_cast<float>(reader.NumberOr("routed_scaling_factor", 1));
  ParseExpertGroups(reader, 1, 1, router);
  return router;
}

}  // namespace

Result<DecoderConfig> ParseGlm4(ConfigReader reader) {
  DecoderConfig c = ParseDecoder(reader, {.rope = kHalf, .attention_bias = true});
  if (!reader.Has("head_dim")) reader.Fail("head_dim", "is missing; this architecture needs it");
  c.ropes.front().style = RopeStyle::kInterleaved;
  c.attention.output_bias = false;
  c.mlp.merged = true;
  c.layer = [](const LayerBuilder& b) {
    return SandwichNorm{b.Norm("input_layernorm"),
                        b.Attention("self_attn"),
                        b.Norm("post_self_attn_layernorm"),
                        b.Norm("post_attention_layernorm"),
                        b.FeedForward("mlp"),
                        b.Norm("post_mlp_layernorm")};
  };
  return reader.Finish(c);
}

Result<DecoderConfig> ParseGlm4Moe(ConfigReader reader) {
  DecoderConfig c = ParseDecoder(reader, {.rope = kHalf});
  c.attention.output_bias = false;
  if (reader.BoolOr("use_qk_norm", false)) c.layer = LlamaLayer({.qk_norm = c.norm});
  nn::MoeShape& moe = c.moe;
  moe.hidden_size = c.hidden_size;
  moe.intermediate_size = reader.Int("moe_intermediate_size", kIntermediateSizes);
  moe.activation = c.mlp.activation;
  moe.router = ParseRouter(reader);
  moe.score_correction_bias = true;
  moe.shared_intermediate_size =
      moe.intermediate_size * reader.IntOr("n_shared_experts", 1, Positive(1024));
  moe.names.shared = "shared_experts";
  const auto num_dense =
      static_cast<size_t>(reader.IntOr("first_k_dense_replace", 1, NonNegative(10000)));
  for (size_t i = num_dense; i < c.layers.size(); ++i) c.layers[i].experts = true;
  c.mtp_layers = reader.IntOr("num_nextn_predict_layers", 1, NonNegative(16));
  reader.Ignore({"output_router_logits"});
  return reader.Finish(c);
}

}  // namespace tokamak
