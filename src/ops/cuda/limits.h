// The largest sizes that the CUDA backend supports (check_sizes.h).
#pragma once

#include <cstdint>

namespace tokamak::cuda {

// The most dimensions of keys and values that registers and shared memory hold.
inline constexpr int32_t kMaxHeadDim = 576;
inline constexpr int32_t kMaxValueDim = 512;
// The same if they are decompressed from latents by the plain kernel.
inline constexpr int32_t kMaxExpandedDim = 256;
// The most dimensions of the keys of a gated delta net that registers hold.
inline constexpr int32_t kMaxDeltaKeyDim = 256;
// The sampler keeps a token in 24 bits.
inline constexpr int32_t kMaxVocabulary = (1 << 24) - 1;

}  // namespace tokamak::cuda
