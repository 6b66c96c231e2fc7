// A decoder of pre-norm layers, attention and a feed-forward each: what most families are. A
// family's file says what its configuration means; this builds the layers and runs them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "models/families.h"
#include "nn/attention.h"
#include "nn/mlp.h"
#include "nn/moe.h"
#include "nn/rope.h"

namespace tokamak {

struct DecoderLayer {
  nn::AttentionConfig attention;
  std::variant<nn::MlpShape, nn::MoeShape> feed_forward;
};

struct DecoderConfig {
  std::string architecture;  // Hugging Face class name
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  float rms_norm_eps = 0;
  bool tie_word_embeddings = false;
  nn::RopeSpec rope;
  std::vector<DecoderLayer> layers;
};

// Errors of the weights stay in load.status.
Result<std::unique_ptr<Model>> MakeDecoder(DecoderConfig config, nn::WeightLoad& load,
                                           const LoadOptions& options);

// The fields that Llama and its descendants share: equal layers of attention, with or without
// biases, and an MLP without. What a family has besides, it reads and puts in.
DecoderConfig ParseDecoder(ConfigReader& reader);

}  // namespace tokamak
