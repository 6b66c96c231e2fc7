// The memory of layers that keep a state per sequence: one state for each sequence slot.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nn/cache_layout.h"
#include "ops/ops.h"
#include "step/step_input.h"

namespace tokamak {

// A slot's states of all layers lie together. They are those behind the slot's last computed
// position and no other; a sequence that begins in a slot begins with zeros, whatever is there
// (ops/gated_delta.h). Owned by the runner.
class StatePool {
 public:
  StatePool() = default;  // without slots
  // Memory is allocated but not touched.
  static Result<StatePool> Create(Ops& ops, const nn::CacheLayout& cache, int32_t num_slots);

  std::span<const StateLayerView> layers() const { return layers_; }  // one per layer with a state
  int64_t bytes() const { return static_cast<int64_t>(memory_.size()); }

  // Gives the slots of forks the states of their sources, behind all earlier work of the stream.
  // Sources have computed all their tokens and forks have more, so no fork is another's source.
  void Fork(std::span<const ForkSequence> forks, Ops& ops, Stream& stream);

 private:
  int64_t slot_bytes_ = 0;
  Buffer memory_;
  std::vector<StateLayerView> layers_;
  std::vector<CopyRanges::Range> copies_;  // scratch
};

}  // namespace tokamak
