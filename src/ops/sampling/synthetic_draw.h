// The draws of benchmarks (SamplerShape::synthetic_acceptance). constexpr, for device code.
#pragma once

#include <cstdint>

#include "base/gumbel.h"
#include "step/step_input.h"

namespace tokamak::sampling {

// Returns the draft with this probability, else another token. Depends on nothing but the slot and
// the position.
constexpr TokenId SyntheticDraw(double acceptance, SequenceSlotId slot, int32_t position,
                                TokenId draft, int32_t vocab_size) {
  const DrawKey key = {.seed = static_cast<uint64_t>(slot), .position = position};
  const bool accepted = DrawWords(key, 0)[0] < acceptance * 0x1p32;
  return accepted ? draft : (draft + 1) % vocab_size;
}

}  // namespace tokamak::sampling
