// Gemma 2 and Gemma 3, also as the text model of multimodal Gemma 3: pre-norms and post-norms,
// windows in most layers. Gemma 2 caps scores and logits; Gemma 3 instead normalizes the heads of
// queries and keys, and layers with a window have their own RoPE base. Reports: arXiv:2408.00118,
// arXiv:2503.19786. Reference: transformers, models/gemma2 and models/gemma3.
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "models/families.h"
#include "models/fields.h"

namespace tokamak {
namespace {

// Shared by both. The reference's default sizes are those of one model; here sizes are required.
DecoderConfig ParseCommon(ConfigReader& reader, bool rope_apart) {
  DecoderConfig c = ParseDecoder(reader, {.rope_apart = rope_apart,
                                          .tie_word_embeddings = true,
                                          .activation = "hidden_activation",
                                          .absent_activation = "gelu_pytorch_tanh"});
  if (!reader.Has("head_dim")) reader.Fail("head_dim", "is missing; this architecture needs it");
  c.norm.offset = 1;
  c.embedding_scale = std::sqrt(static_cast<float>(c.hidden_size));
  const double scalar = reader.NumberOr("query_pre_attn_scalar", 256);
  c.attention.scale = static_cast<float>(1 / std::sqrt(scalar));
  // Files may have both names of the activation.
  const std::string activation = reader.StringOr("hidden_activation", "gelu_pytorch_tanh");
  reader.ExpectOrAbsent("hidden_act", activation);
  reader.ExpectOrAbsent("use_bidirectional_attention", false);
  reader.Ignore({"cache_implementation"});
  return c;
}

// `extras`: Gemma 2 caps the scores, Gemma 3 normalizes queries and keys.
MakeLayer MakeGemmaLayer(const nn::AttentionExtras& extras) {
  return [extras](const LayerBuilder& b) {
    return SandwichNorm{b.Norm("input_layernorm"),
                        b.Attention("self_attn", extras),
                        b.Norm("post_attention_layernorm"),
                        b.Norm("pre_feedforward_layernorm"),
                        b.FeedForward("mlp"),
                        b.Norm("post_feedforward_layernorm")};
  };
}

// Null means no cap.
float ParseCap(ConfigReader& reader, std::string_view name, double absent) {
  if (reader.IsNull(name)) absent = 0;
  return static_cast<float>(reader.NumberOr(name, absent));
}

// The RoPE of layers without a window, and of those with one. Files have an object for each. Older
// files have separate fields, whose rope_scaling is for layers without a window. An object without
// a base takes it from the older fields.
std::vector<nn::RopeSpec> ParseRopes(ConfigReader& reader, const DecoderConfig& c) {
  constexpr NumberRange kBases = {1.0001, 1e15};
  const nn::RopeDefaults global = {.theta = reader.NumberOr("rope_theta", 1e6, kBases)};
  const nn::RopeDefaults local = {.theta = reader.NumberOr("rope_local_base_freq", 1e4, kBases)};
  const int32_t head_dim = c.attention.head_dim;
  const auto positions = reader.Int("max_position_embeddings");
  if (!reader.Has("rope_parameters")) {
    return {nn::ParseRope(reader, head_dim, positions, global),
            nn::ParseRopeObject(reader, nullptr, head_dim, positions, local)};
  }
  ConfigReader both = reader.Object("rope_parameters");
  const auto parse = [&](std::string_view name, const nn::RopeDefaults& defaults) {
    std::optional<ConfigReader> one;
    if (both.Has(name)) one = both.Object(name);
    return nn::ParseRopeObject(reader, one ? &*one : nullptr, head_dim, positions, defaults);
  };
  return {parse("full_attention", global), parse("sliding_attention", local)};
}

}  // namespace

Result<DecoderConfig> ParseGemma2(ConfigReader reader) {
  DecoderConfig c = ParseCommon(reader, /*rope_apart=*/false);
  c.logit_softcap = ParseCap(reader, "final_logit_softcapping", 30);
  c.layer = MakeGemmaLayer({.softcap = ParseCap(reader, "attn_logit_softcapping", 50)});
  ParseSlidingLayers(reader, c, reader.IntOr("sliding_window", 4096),
                     [](int32_t i) { return i % 2 == 0; });
  return reader.Finish(c);
}

Result<DecoderConfig> ParseGemma3(ConfigReader reader) {
  DecoderConfig c = ParseCommon(reader, /*rope_apart=*/true);
  c.ropes = ParseRopes(reader, c);
  c.layer = MakeGemmaLayer({.qk_norm = c.norm});
  c.logit_softcap = ParseCap(reader, "final_logit_softcapping", 0);
  // The reference reads this field but does not use it.
  reader.ExpectOrAbsent("attn_logit_softcapping", JsonValue());
  const int32_t pattern = reader.IntOr("sliding_window_pattern", 6);
  ParseSlidingLayers(reader, c, reader.IntOr("sliding_window", 4096),
                     [=](int32_t i) { return (i + 1) % pattern != 0; });
  for (DecoderLayer& layer : c.layers) layer.rope = layer.window > 0 ? 1 : 0;
  reader.Ignore({"_sliding_window_pattern"});
  return reader.Finish(c);
}

Result<DecoderConfig> ParseGemma3Multimodal(ConfigReader reader) {
  ConfigReader text = OpenTextConfig(reader, "gemma3_text");
  // Published files leave out fields that equal the class's defaults, for example the 4B model's
  // attention sizes and context. All files state the sizes of the layers.
  text.SetDefault("vocab_size", 262208);
  text.SetDefault("num_attention_heads", 8);
  text.SetDefault("num_key_value_heads", 4);
  text.SetDefault("head_dim", 256);
  text.SetDefault("max_position_embeddings", 131072);
  text.SetDefault("rms_norm_eps", 1e-6);
  ASSIGN_OR_RETURN(DecoderConfig c, ParseGemma3(text));
  ParseOuterTie(reader, c);
  // For images.
  reader.Ignore({"vision_config", "mm_tokens_per_image", "boi_token_index", "eoi_token_index",
                 "image_token_index"});
  return reader.Finish(c);
}

}  // namespace tokamak
