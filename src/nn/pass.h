// All that a forward pass needs. Layers get it as an argument; there are no globals.
#pragma once

#include <cstdint>
#include <span>

#include "ops/gated_delta.h"
#include "ops/ops.h"
#include "tensor/arena.h"

namespace tokamak::nn {

// One cache group's view of the step.
struct AttentionMetadata {
  const AttentionPlan* plan = nullptr;
  Tensor slot_mapping;  // i64 [T], where each token's cache entries go; -1 for padding
};

// T tokens of all sequences, in batch order. R of them get logits.
struct Pass {
  Ops& ops;
  Stream& stream;
  Arena& arena;
  Tensor token_ids = {};  // i32 [T]; only the first stage of a pipeline needs them
  // On later stages: f32 [T, hidden_size], what Model::Forward returned on the stage before. It is
  // overwritten.
  Tensor hidden = {};
  Tensor positions = {};  // i32 [T], plus LongRopeOffset of step/cache_spec.h
  // Positions in several dimensions, for rotations by rows and columns of images: i32 [dimensions,
  // T]. Empty if each token's would all equal its position.
  Tensor rope_positions = {};
  Tensor token_indices = {};                       // i32 [T]: 0, 1, ...; only with rope_positions
  std::span<const AttentionMetadata> groups = {};  // as in the model's CacheLayout
  std::span<const KvLayerView> kv_layers = {};     // one per attention layer
  // One per layer with a state; and the step's sequences for them, empty if there is none.
  std::span<const StateLayerView> state_layers = {};
  StateBatch states = {};
  Tensor logit_rows = {};  // i32 [R], indices into the T tokens
  // Image encoders with ImageEncoderSpec::position_taps: as in ImageLayout. i32 and f32 [T, taps].
  Tensor position_rows = {};
  Tensor position_weights = {};
  // K of the tokens get their hidden state not from the embedding but from an image: token
  // image_to[k] gets row image_from[k] of image_rows. K is 0 in steps without images.
  Tensor image_rows = {};  // f32 [any, ImageEncoderSpec::row_size]
  Tensor image_from = {};  // i32 [K]
  Tensor image_to = {};    // i32 [K]
  // RouteTokens::offsets of each MoE layer, i32 [MoE layers, largest number of experts + 1]; or
  // empty.
  Tensor expert_offsets = {};
  // If given, all layers rotate by it instead of by their own tables: row t is token t's
  // (nn::TokenRope). Set by the model.
  const RopeTable* token_rope = nullptr;

  int64_t num_tokens() const { return positions.cols(); }
};

}  // namespace tokamak::nn
