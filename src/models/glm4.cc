// GLM-4 (0414), and the MoE models GLM-4.5 and 4.6. Both rotate half of each head: GLM-4 in
// interleaved pairs, the MoE models in split halves. Also the text models of GLM-4.1V and GLM-4.5V,
// with mRoPE. Reports: arXiv:2406.12793, arXiv:2508.06471. Reference: transformers, models/glm4,
// glm4_moe, glm4v and glm4v_moe.
#include "models/families.h"
#include "models/fields.h"

namespace tokamak {
namespace {

constexpr double kHalf = 0.5;  // of each head rotates

DecoderConfig ParseDense(ConfigReader& reader, const DecoderDefaults& defaults) {
  DecoderConfig c = ParseDecoder(reader, defaults);
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
  return c;
}

DecoderConfig ParseMoe(ConfigReader& reader, const DecoderDefaults& defaults) {
  DecoderConfig c = ParseDecoder(reader, defaults);
  c.attention.output_bias = false;
  ParseExperts(reader, c, "n_routed_experts", "moe_intermediate_size");
  ParseSigmoidRouter(reader, 1, 1, 1, c.moe);
  c.moe.shared_intermediate_size =
      c.moe.intermediate_size * reader.IntOr("n_shared_experts", 1, Positive(1024));
  c.moe.names.shared = "shared_experts";
  const int32_t num_dense = reader.IntOr("first_k_dense_replace", 1, NonNegative(10000));
  SetExperts(c, [=](int32_t i) { return i >= num_dense; });
  c.mtp_layers = reader.IntOr("num_nextn_predict_layers", 1, NonNegative(16));
  return c;
}

// Defaults of the reference's classes that GLM-4.1V and GLM-4.5V share.
void SetVisionTextDefaults(ConfigReader& text) {
  text.SetDefault("hidden_size", 4096);
  text.SetDefault("hidden_act", "silu");
  text.SetDefault("rms_norm_eps", 1e-5);
  // Published text_configs repeat the tokens of images.
  text.Ignore({"image_end_token_id", "image_start_token_id", "image_token_id", "video_end_token_id",
               "video_start_token_id", "video_token_id"});
}

nn::RopeDefaults VisionTextRope(double part) {
  return {.partial_rotary_factor = part, .sections = {8, 12, 12}};
}

}  // namespace

Result<DecoderConfig> ParseGlm4(ConfigReader reader) {
  DecoderConfig c =
      ParseDense(reader, {.rope = {.partial_rotary_factor = kHalf}, .attention_bias = true});
  if (!reader.Has("head_dim")) reader.Fail("head_dim", "is missing; this architecture needs it");
  return reader.Finish(c);
}

Result<DecoderConfig> ParseGlm4Moe(ConfigReader reader) {
  DecoderConfig c = ParseMoe(reader, {.rope = {.partial_rotary_factor = kHalf}});
  if (reader.BoolOr("use_qk_norm", false)) c.layer = LlamaLayer({.qk_norm = c.norm});
  return reader.Finish(c);
}

DecoderConfig ParseGlm4vText(ConfigReader& text) {
  SetVisionTextDefaults(text);
  text.SetDefault("vocab_size", 151552);
  text.SetDefault("intermediate_size", 13696);
  text.SetDefault("num_hidden_layers", 40);
  text.SetDefault("num_attention_heads", 32);
  text.SetDefault("max_position_embeddings", 32768);
  if (!text.IsNull("num_key_value_heads")) text.SetDefault("num_key_value_heads", 2);
  DecoderConfig c = ParseDense(
      text, {.rope = VisionTextRope(1), .attention_bias = true, .attention_bias_is_fixed = true});
  if (c.attention.head_dim * c.attention.num_heads != c.hidden_size) {
    text.Fail("head_dim", "differs from hidden_size / num_attention_heads");
  }
  return c;
}

DecoderConfig ParseGlm4vMoeText(ConfigReader& text) {
  SetVisionTextDefaults(text);
  text.SetDefault("vocab_size", 151424);
  text.SetDefault("intermediate_size", 10944);
  text.SetDefault("num_hidden_layers", 46);
  text.SetDefault("num_attention_heads", 96);
  text.SetDefault("num_key_value_heads", 8);
  text.SetDefault("max_position_embeddings", 65536);
  text.SetDefault("moe_intermediate_size", 1408);
  text.SetDefault("num_experts_per_tok", 8);
  text.SetDefault("n_routed_experts", 128);
  DecoderConfig c = ParseMoe(text, {.rope = VisionTextRope(kHalf), .attention_bias = true});
  text.ExpectOrAbsent("use_qk_norm", false);
  return c;
}

}  // namespace tokamak
