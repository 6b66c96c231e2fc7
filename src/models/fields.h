// Reads fields that several families have into the decoder's configuration.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "models/decoder.h"
#include "weights/config_reader.h"

namespace tokamak {

// Limits. They are far beyond any model, but heads × dimensions still fits into 32 bits, and a
// vector of each size into memory.
inline constexpr IntRange kHiddenSizes = Positive(1 << 20);
inline constexpr IntRange kIntermediateSizes = Positive(1 << 24);  // of feed-forward layers
inline constexpr IntRange kVocabSizes = Positive(1 << 24);
inline constexpr IntRange kHeadCounts = Positive(1 << 14);
inline constexpr IntRange kHeadDims = Positive(1 << 14);

// Defaults of absent fields, which differ between families.
struct DecoderDefaults {
  nn::RopeDefaults rope = {};
  bool rope_apart = false;  // the family sets DecoderConfig::ropes itself
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  // The reference ignores the configuration's attention_bias and always uses the value above.
  bool attention_bias_is_fixed = false;
  // The field with the dimensions of a head (in DeepSeek, of its rotated part).
  const char* head_dim = "head_dim";
  // The field with the feed-forward's activation, and the activation if it is absent; null:
  // required.
  const char* activation = "hidden_act";
  const char* absent_activation = nullptr;
};

// The fields that Llama and its descendants share: layers that are all alike, attention with or
// without biases, and an MLP without biases. A family reads its other fields itself.
DecoderConfig ParseDecoder(ConfigReader& reader, const DecoderDefaults& defaults = {});

// Attention whose heads share hidden_size equally and have their own keys and values, from the
// fields of these names.
nn::AttentionConfig ParseMultiHeadAttention(ConfigReader& reader, const char* hidden_size,
                                            const char* num_heads);

// sliding_window; 0 if that is null.
int32_t ParseWindow(ConfigReader& reader, int32_t absent);
// Sets the window of the layers that are "sliding_attention" in layer_types; if that is absent, of
// the layers i with absent(i). Returns which layers these are.
std::vector<bool> ParseSlidingLayers(ConfigReader& reader, DecoderConfig& c, int32_t window,
                                     FunctionRef<bool(int32_t i)> absent);
void SetWindow(DecoderConfig& c, int32_t window);  // of all layers

// Reads num_experts_per_tok, and from the fields `count` and `size` the experts' number and
// intermediate_size, which is the MLP's if `size` is null. All layers become MoE layers.
void ParseExperts(ConfigReader& reader, DecoderConfig& c, const char* count, const char* size);
// The layers i with has_experts(i) are MoE layers.
void SetExperts(DecoderConfig& c, FunctionRef<bool(int32_t i)> has_experts);
// For routers that first choose groups of experts, and then experts of these groups. The router's
// other fields are set. `num_groups` and `top_groups` are the defaults.
void ParseExpertGroups(ConfigReader& reader, int32_t num_groups, int32_t top_groups,
                       RouterConfig& router);

// The router of DeepSeek-V3 (arXiv:2412.19437, section 2.1.2), with the defaults of its factor and
// groups.
void ParseSigmoidRouter(ConfigReader& reader, double scale, int32_t num_groups, int32_t top_groups,
                        nn::MoeShape& moe);

// Opens the text model's configuration in that of a multimodal model, of which only the text model
// runs. Its model_type, if any, must be this one.
ConfigReader OpenTextConfig(ConfigReader& outer, const std::string& model_type);
// Reads the outer tie_word_embeddings. As in the reference, it overrides text_config: the output is
// tied to the embeddings unless the field is false or an output matrix is stored.
void ParseOuterTie(ConfigReader& outer, DecoderConfig& c);
// The same where either field ties the output to the embeddings, if no output matrix is stored.
void ParseEitherTie(ConfigReader& outer, DecoderConfig& c);

}  // namespace tokamak
