// For launches: the size of a grid, and the choice of a kernel's instance for the types of its
// tensors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ceil_div.h"
#include "ops/cuda/device.cuh"

namespace tokamak::cuda {

// The number of CTAs for `items`, of which each takes `per_cta`.
inline unsigned Grid(int64_t items, int64_t per_cta) {
  return static_cast<unsigned>(CeilDiv(items, per_cta));
}

inline size_t ElementBytes(bool bf16) { return bf16 ? sizeof(uint16_t) : sizeof(float); }

// launch<BF16 or F32, vectors>().
template <typename Launch>
cudaError_t LaunchAs(bool bf16, bool vectors, const Launch& launch) {
  if (bf16) {
    return vectors ? launch.template operator()<BF16, true>()
                   : launch.template operator()<BF16, false>();
  }
  return vectors ? launch.template operator()<F32, true>()
                 : launch.template operator()<F32, false>();
}

// launch<BF16 or F32, BF16 or F32, vectors>(): what is read, and what is written.
template <typename Launch>
cudaError_t LaunchAs(bool in_bf16, bool out_bf16, bool vectors, const Launch& launch) {
  return LaunchAs(out_bf16, vectors, [&]<typename Out, bool kVectors>() {
    return in_bf16 ? launch.template operator()<BF16, Out, kVectors>()
                   : launch.template operator()<F32, Out, kVectors>();
  });
}

}  // namespace tokamak::cuda
