// What kernels share: elements of any plain type as floats, sums over warps and CTAs.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "ops/cuda/launch.h"
#include "quant/half.h"
#include "tensor/dtype.h"

namespace tokamak::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// A stored element as f32. Storing rounds to nearest even and keeps NaN payloads as the host does.
struct F32 {
  using Storage = float;
  static __device__ float Load(float value) { return value; }
  static __device__ float Store(float value) { return value; }
};
struct F16 {
  using Storage = uint16_t;
  static __device__ float Load(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
  static __device__ uint16_t Store(float value) { return FloatToHalf(value); }
};
struct BF16 {
  using Storage = uint16_t;
  static __device__ float Load(uint16_t bits) { return __uint_as_float(uint32_t{bits} << 16); }
  static __device__ uint16_t Store(float value) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  }
};
// BF16 for the cache.
struct ExactBF16 : BF16 {
  static __device__ uint16_t Store(float value) { return FloatToBFloat16(value); }
};

// The sum over a warp, in every lane: pairs at distance 16, 8, 4, 2, 1.
inline __device__ float WarpSum(float value) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}
inline __device__ float WarpMax(float value) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

// The sum over a CTA of kThreads, in every thread: warps first, then their sums.
template <int kThreads>
inline __device__ float BlockSum(float value) {
  SHARED(sums, float[kThreads / kWarp]);
  value = WarpSum(value);
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  return WarpSum(lane < kThreads / kWarp ? sums[lane] : 0.0f);
}

}  // namespace tokamak::cuda
