// GLM-4 (0414), and the MoE models GLM-4.5 and 4.6. Both rotate half of each head: GLM-4 in
// interleaved pairs, the MoE models in split halves. Reports: arXiv:2406.12793, arXiv:2508.06471.
// Reference: transformers, models/glm4 and models/glm4_moe.
#include "models/families.h"
#include "models/fields.h"

namespace tokamak {
namespace {

constexpr nn::RopeDefaults kHalf = {.partial_rotary_factor = 0.5};

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
  ParseExperts(reader, c, "n_routed_experts", "moe_intermediate_size");
  ParseSigmoidRouter(reader, 1, 1, 1, c.moe);
  c.moe.shared_intermediate_size =
      c.moe.intermediate_size * reader.IntOr("n_shared_experts", 1, Positive(1024));
  c.moe.names.shared = "shared_experts";
  const int32_t num_dense = reader.IntOr("first_k_dense_replace", 1, NonNegative(10000));
  SetExperts(c, [=](int32_t i) { return i >= num_dense; });
  c.mtp_layers = reader.IntOr("num_nextn_predict_layers", 1, NonNegative(16));
  return reader.Finish(c);
}

}  // namespace tokamak
