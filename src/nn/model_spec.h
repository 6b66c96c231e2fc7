// The facts about a model that are known once it is loaded.
#pragma once

#include <cstdint>
#include <string>

#include "nn/cache_layout.h"

namespace tokamak {

// The part of a model that is on one stage of a pipeline. By default it is the whole model.
struct StageSpec {
  int32_t index = 0;
  int32_t count = 1;
  int32_t first_layer = 0;
  int32_t end_layer = 0;
  // Indices of its MoE layers: [first_moe_layer, end_moe_layer) of ModelSpec::num_moe_layers.
  int32_t first_moe_layer = 0;
  int32_t end_moe_layer = 0;

  bool first() const { return index == 0; }         // has the embedding and the image encoder
  bool last() const { return index == count - 1; }  // has the output layer
};

struct ModelSpec {
  std::string architecture;  // Hugging Face class name, e.g. "LlamaForCausalLM"
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t max_context = 0;  // positions that the model was trained for
  StageSpec stage;
  // nn::Builder counts these. Parameters, shares and MoE layers are those of the whole model, bytes
  // those of this stage and rank.
  int64_t num_parameters = 0;
  int64_t weight_bytes = 0;  // as packed
  int64_t expert_parameters = 0;
  int64_t expert_bytes = 0;    // a token reads expert_share of them
  double expert_share = 1;     // top_k / num_experts
  int32_t num_moe_layers = 0;  // layers with experts
  int32_t max_experts = 0;     // of any layer
  // -1 and 0 for models that do not see.
  int32_t image_token = -1;  // stands for one row of an image
  // If texts have a mark in the place of an image: this token, which stays before the image's rows
  // when they are added, with image_end behind them, and an empty line on either side. -1: none.
  int32_t image_mark = -1, image_end = -1;
  int64_t image_weight_bytes = 0;  // of weight_bytes, those of the image encoder
  nn::CacheLayout cache;           // groups of the whole model, layers of the stage
};

}  // namespace tokamak
