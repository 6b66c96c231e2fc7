// Reductions and prefix sums over a CTA of kCtaThreads threads. For exact arithmetic only, where
// every order of combining gives the same bits.
#pragma once

#include <cstdint>
#include <cstring>

#include "ops/cuda/device.cuh"

namespace tokamak::cuda {

inline constexpr int kCtaThreads = 1024;
inline constexpr int kCtaWarps = kCtaThreads / kWarp;

// Returns the value of lane `lane ^ distance`. T has a whole number of words.
template <typename T>
__device__ T ShuffleXor(const T& value, int distance) {
  static_assert(sizeof(T) % sizeof(uint32_t) == 0);
  uint32_t words[sizeof(T) / sizeof(uint32_t)];
  memcpy(words, &value, sizeof(T));
  for (uint32_t& word : words) word = __shfl_xor_sync(kAllLanes, word, distance);
  T other;
  memcpy(&other, words, sizeof(T));
  return other;
}

// Combines the values of all threads with combine(a, b). Every thread gets the result.
template <typename T, typename Combine>
__device__ T CtaReduce(T value, Combine combine) {
  // Bytes, because shared memory runs no constructors.
  struct alignas(T) Storage {
    unsigned char bytes[kCtaWarps * sizeof(T)];
  };
  SHARED(storage, Storage);
  T* partial = reinterpret_cast<T*>(storage.bytes);
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = combine(value, ShuffleXor(value, distance));
  }
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = value;
  __syncthreads();
  static_assert(kCtaWarps == kWarp);
  value = partial[threadIdx.x % kWarp];
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = combine(value, ShuffleXor(value, distance));
  }
  __syncthreads();  // all have read `partial`, so the next call may write it
  return value;
}

inline __device__ uint64_t CtaSum(uint64_t value) {
  return CtaReduce(value, [](uint64_t a, uint64_t b) { return a + b; });
}

// Returns the sum of the values of this thread and all threads before it.
inline __device__ uint64_t CtaInclusiveScan(uint64_t value) {
  SHARED(partial, uint64_t[kCtaWarps]);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const auto warp_scan = [lane](uint64_t v) {
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const uint64_t before = __shfl_up_sync(kAllLanes, v, distance);
      if (lane >= distance) v += before;
    }
    return v;
  };
  value = warp_scan(value);
  if (lane == kWarp - 1) partial[warp] = value;
  __syncthreads();
  const uint64_t warps = warp_scan(partial[lane]);
  const uint64_t before = __shfl_sync(kAllLanes, warps, warp == 0 ? 0 : warp - 1);
  __syncthreads();
  return value + (warp == 0 ? 0 : before);
}

}  // namespace tokamak::cuda
