// Pass: all that one forward pass needs, given to every layer. Nothing is read from globals.
#pragma once

#include <cstdint>
#include <span>

#include "ops/ops.h"
#include "tensor/arena.h"

namespace tokamak::nn {

// One cache group's view of the step.
struct AttentionMetadata {
  const AttentionPlan* plan = nullptr;
  Tensor slot_mapping;  // i64 [T], where each token's cache entries go; -1 for padding
};

// T tokens of all sequences in batch order; R of them get logits.
struct Pass {
  Ops& ops;
  Stream& stream;
  Arena& arena;
  Tensor token_ids = {};  // i32 [T]
  Tensor positions = {};  // i32 [T], plus LongRopeOffset of step/cache_spec.h
  std::span<const AttentionMetadata> groups = {};  // as the model's CacheLayout numbers them
  std::span<const KvLayerView> kv_layers = {};     // one per attention layer
  Tensor logit_rows = {};                          // i32 [R], indices into the T tokens
  // Where each MoE layer leaves how it shared out its tokens: RouteTokens::offsets, i32
  // [MoE layers, most experts of one + 1]; or empty.
  Tensor expert_offsets = {};

  int64_t num_tokens() const { return token_ids.cols(); }
};

}  // namespace tokamak::nn
