// The decoder that most families share: layers of attention and a feed-forward, with pre-norms,
// post-norms or both. A family's file reads its configuration; this builds and runs the layers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "models/model.h"
#include "models/registry.h"
#include "nn/attention.h"
#include "nn/builder.h"
#include "nn/mla.h"
#include "nn/mlp.h"
#include "nn/moe.h"
#include "nn/norm.h"
#include "nn/rope.h"
#include "weights/config_reader.h"

namespace tokamak {

// Limits for configurations. They are far beyond any model, but heads × dimensions still fits into
// 32 bits, and a vector of each size into memory.
inline constexpr IntRange kHiddenSizes = Positive(1 << 20);
inline constexpr IntRange kIntermediateSizes = Positive(1 << 24);  // of feed-forward layers
inline constexpr IntRange kVocabSizes = Positive(1 << 24);
inline constexpr IntRange kHeadCounts = Positive(1 << 14);
inline constexpr IntRange kHeadDims = Positive(1 << 14);

struct DecoderLayer {
  nn::AttentionConfig attention;
  std::optional<nn::MlaConfig> mla = std::nullopt;  // replaces `attention`
  std::variant<nn::MlpShape, nn::MoeShape, nn::PlainMlpShape> feed_forward;
  // Index into DecoderConfig::ropes; kNoRope: queries and keys do not rotate.
  static constexpr int kNoRope = -1;
  int rope = 0;
};

// A checkpoint's names for the parts of the model and of a layer.
struct DecoderNames {
  std::string_view model = "model";
  std::string_view embedding = "embed_tokens";
  std::string_view layers = "layers";
  std::string_view final_norm = "norm";
  std::string_view attention = "self_attn";
  // Pre-norms of a branch's input; empty: none.
  std::string_view pre_attention_norm = "input_layernorm";
  std::string_view pre_feed_forward_norm = "post_attention_layernorm";
  // Post-norms of a branch's output, before it is added; empty: none.
  std::string_view post_attention_norm = {};
  std::string_view post_feed_forward_norm = {};
  std::string_view feed_forward = "mlp";
};

// Only post-norms, as in OLMo 2.
inline constexpr DecoderNames kPostNormNames = {
    .pre_attention_norm = {},
    .pre_feed_forward_norm = {},
    .post_attention_norm = "post_attention_layernorm",
    .post_feed_forward_norm = "post_feedforward_layernorm"};

struct DecoderConfig {
  std::string architecture;  // Hugging Face class name
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  nn::NormConfig norm;  // of the residual stream
  bool tie_word_embeddings = false;
  // The output is tied exactly if the checkpoint stores no output matrix, whatever
  // tie_word_embeddings says.
  bool tied_unless_stored = false;
  float embedding_scale = 1;
  float logit_softcap = 0;  // 0: none
  // At least one, unless all layers have kNoRope; then max_positions is the context.
  std::vector<nn::RopeSpec> ropes;
  int32_t max_positions = 0;
  std::vector<DecoderLayer> layers;
  DecoderNames names = {};
  int32_t mtp_layers = 0;  // multi-token prediction layers, stored after the others; not loaded
};

// Errors of weights stay in load.status.
Result<std::unique_ptr<Model>> MakeDecoder(DecoderConfig config, nn::WeightLoad& load,
                                           const LoadOptions& options);

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

}  // namespace tokamak
