// A small model with random weights and both kinds of cache group, for tests of engine and runner.
#pragma once

#include <cstdint>
#include <memory>

#include "models/model.h"
#include "ops/ops.h"

namespace tokamak::testing {

struct ToyConfig {
  int32_t vocab_size = 96;
  int32_t max_context = 256;
  int32_t window = 11;  // window of the second cache group; 0: only one group
  DType dtype = DType::kF32;
  uint64_t seed = 1;
  // Embedding this token makes the whole row NaN; -1: no token does.
  int32_t poison = -1;
  // Has an image encoder: an image of shape {n, 4} becomes n rows. On the CPU only.
  bool sees = false;
  bool bidirectional_images = false;  // as in nn::CacheLayout
  // Has a fourth layer, which keeps a state per sequence. On the CPU only.
  bool keeps_state = false;
};

// Three attention layers: full, window, full. With a state, a layer of sums over the past. Errors
// are CHECKs. `ops` must outlive the model.
std::unique_ptr<Model> MakeToyModel(Ops& ops, const ToyConfig& config = {});

}  // namespace tokamak::testing
