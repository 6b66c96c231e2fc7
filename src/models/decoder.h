// A decoder of pre-norm layers, attention and a feed-forward each: what most families are. A
// family's file says what its configuration means; this builds the layers and runs them.
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
#include "nn/rope.h"
#include "weights/config_reader.h"

namespace tokamak {

// What a configuration may ask for: far more than any model has, and so little that heads times
// dimensions fit into 32 bits and a vector of each into memory.
inline constexpr IntRange kHiddenSizes = Positive(1 << 20);
inline constexpr IntRange kIntermediateSizes = Positive(1 << 24);  // of feed-forward layers
inline constexpr IntRange kVocabSizes = Positive(1 << 24);
inline constexpr IntRange kHeadCounts = Positive(1 << 14);
inline constexpr IntRange kHeadDims = Positive(1 << 14);

struct DecoderLayer {
  nn::AttentionConfig attention;
  std::optional<nn::MlaConfig> mla = std::nullopt;  // in place of `attention`
  std::variant<nn::MlpShape, nn::MoeShape, nn::PlainMlpShape> feed_forward;
  // Which of DecoderConfig::ropes rotates queries and keys; kNoRope: they do not rotate.
  static constexpr int kNoRope = -1;
  int rope = 0;
};

// What a checkpoint calls the model's parts, and a layer's.
struct DecoderNames {
  std::string_view model = "model";
  std::string_view embedding = "embed_tokens";
  std::string_view layers = "layers";
  std::string_view final_norm = "norm";
  std::string_view attention = "self_attn";
  // Pre-norms, of what a branch reads; empty: none.
  std::string_view pre_attention_norm = "input_layernorm";
  std::string_view pre_feed_forward_norm = "post_attention_layernorm";
  // Post-norms, of what a branch gives, before it is added; empty: none.
  std::string_view post_attention_norm = {};
  std::string_view post_feed_forward_norm = {};
  std::string_view feed_forward = "mlp";
};

// Post-norm alone, as OLMo 2 has it.
inline constexpr DecoderNames kPostNormNames = {
    .pre_attention_norm = {},
    .pre_feed_forward_norm = {},
    .post_attention_norm = "post_attention_layernorm",
    .post_feed_forward_norm = "post_feedforward_layernorm"};

struct DecoderConfig {
  std::string architecture;  // Hugging Face class name
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  float rms_norm_eps = 0;    // of whatever norm the model has
  bool layer_norms = false;  // layer normalization without biases, not RMS
  bool tie_word_embeddings = false;
  // Of stored weights: tied where there is no output matrix among them, whatever is said above.
  bool tied_unless_stored = false;
  float norm_offset = 0;  // is added to the weights of all norms
  float embedding_scale = 1;
  float logit_softcap = 0;  // 0: none
  // At least one, unless no layer's queries and keys rotate; then max_positions is the context.
  std::vector<nn::RopeSpec> ropes;
  int32_t max_positions = 0;
  std::vector<DecoderLayer> layers;
  DecoderNames names = {};
  int32_t mtp_layers = 0;  // multi-token prediction: stored after the layers; not loaded
};

// Errors of the weights stay in load.status.
Result<std::unique_ptr<Model>> MakeDecoder(DecoderConfig config, nn::WeightLoad& load,
                                           const LoadOptions& options);

// What absent fields mean, where families differ.
struct DecoderDefaults {
  nn::RopeDefaults rope = {};
  bool rope_apart = false;  // the family reads DecoderConfig::ropes itself
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool attention_bias_is_fixed = false;  // the reference has that, whatever the field says
  // Where to find the size of what rotates in a head.
  const char* head_dim = "head_dim";
  // Which field names the activation of the feed-forward, and what its absence means; null: it must
  // be there.
  const char* activation = "hidden_act";
  const char* absent_activation = nullptr;
};

// The fields that Llama and its descendants share: equal layers of attention, with or without
// biases, and an MLP without. What a family has besides, it reads and puts in.
DecoderConfig ParseDecoder(ConfigReader& reader, const DecoderDefaults& defaults = {});

// Attention whose heads share hidden_size equally, with keys and values of their own: the two
// fields of a configuration that say so, by their names.
nn::AttentionConfig ParseMultiHeadAttention(ConfigReader& reader, const char* hidden_size,
                                            const char* num_heads);

}  // namespace tokamak
