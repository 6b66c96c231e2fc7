// Shared by kernels: reads and writes of elements of any plain type as floats, one or four at a
// time, and sums over warps and CTAs.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "ops/cuda/launch.h"
#include "quant/e4m3.h"
#include "quant/half.h"
#include "tensor/dtype.h"

namespace tokamak::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// Element types: how a stored element is read as f32 and written. Writing rounds to nearest even.
// F16 and ExactBF16 keep NaN payloads as the host does; BF16 does not (a GPU makes every NaN
// 0x7fff).
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
// BF16 with the host's NaN payloads, for the cache.
struct ExactBF16 : BF16 {
  static __device__ uint16_t Store(float value) { return FloatToBFloat16(value); }
};
// Larger magnitudes than 448 become 448.
struct E4M3 {
  using Storage = uint8_t;
  static __device__ float Load(uint8_t code) { return E4m3ToFloat(code); }
  static __device__ uint8_t Store(float value) { return FloatToE4m3(value); }
};

// Four neighbouring elements in memory, moved by one instruction.
template <typename Storage>
struct alignas(4 * sizeof(Storage)) Four {
  Storage values[4];
};

// Reads `count` (0 to 4) neighbouring elements; the others of `values` become 0. kVectors: reads
// four, which are aligned as a Four, whatever `count` is.
template <typename Element, bool kVectors>
inline __device__ void LoadFour(const typename Element::Storage* from, int64_t count,
                                float (&values)[4]) {
  if constexpr (kVectors) {
    const auto four = *reinterpret_cast<const Four<typename Element::Storage>*>(from);
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = Element::Load(four.values[i]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = i < count ? Element::Load(from[i]) : 0.0f;
  }
}

// Writes four elements as LoadFour reads them.
template <typename Element, bool kVectors>
inline __device__ void StoreFour(const float (&values)[4], int64_t count,
                                 typename Element::Storage* to) {
  if constexpr (kVectors) {
    Four<typename Element::Storage> four;
#pragma unroll
    for (int i = 0; i < 4; ++i) four.values[i] = Element::Store(values[i]);
    *reinterpret_cast<Four<typename Element::Storage>*>(to) = four;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < count) to[i] = Element::Store(values[i]);
    }
  }
}

// Whether rows of `stride` elements that begin at `data` can be moved four elements at a time.
inline bool FitsFours(const void* data, int64_t stride, size_t element_bytes) {
  return reinterpret_cast<uintptr_t>(data) % (4 * element_bytes) == 0 && stride % 4 == 0;
}

// The sum over kLanes neighbouring lanes, a power of two, in each of them: pairs at distance
// kLanes / 2, ..., 2, 1.
template <int kLanes = kWarp>
inline __device__ float WarpSum(float value) {
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
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

// The sum over a CTA of whole warps, in every thread: warps first, then their sums. A kernel that
// calls it again calls __syncthreads before.
inline __device__ float BlockSum(float value) {
  SHARED(sums, float[kWarp]);
  value = WarpSum(value);
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  return WarpSum(lane < static_cast<int>(blockDim.x) / kWarp ? sums[lane] : 0.0f);
}

}  // namespace tokamak::cuda
