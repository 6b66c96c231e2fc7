// The device's side of the emulated CUDA: what nvcc knows without an include. Stands in for the
// toolkit's header of this name.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include <cuda_runtime_api.h>
#include "ops/cuda/emulation/thread.h"

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

// The running thread's.
extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

template <typename... Params, typename... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Args&&... args) {
  std::tuple<std::decay_t<Params>...> copies(std::forward<Args>(args)...);
  return tokamak::cuda::emulation::Enqueue(*config, reinterpret_cast<const void*>(kernel),
                                           [kernel, copies] { std::apply(kernel, copies); });
}

// Barriers. There is one memory, and accesses to it happen in order, so fences do nothing.
inline void __syncthreads() { tokamak::cuda::emulation::SyncCta(0, 0, false); }
inline int __syncthreads_count(int predicate) {
  return tokamak::cuda::emulation::SyncCta(0, 0, predicate != 0);
}
inline int __syncthreads_or(int predicate) { return __syncthreads_count(predicate) != 0; }
inline int __syncthreads_and(int predicate) { return __syncthreads_count(predicate == 0) == 0; }
inline void __syncwarp(unsigned mask = ~0u) {
  tokamak::cuda::emulation::Exchange(mask, 0, "__syncwarp");
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __nanosleep(unsigned) { tokamak::cuda::emulation::Sleep(); }

// Shuffles, votes and reductions of a warp.
namespace tokamak::cuda::emulation {

// The value of lane `from`, or the caller's own value if that lane is outside the caller's part of
// the warp.
template <typename T>
[[gnu::always_inline]] inline T Shuffle(unsigned mask, T value, int from, int width,
                                        const char* what) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(T));
  const int lane = static_cast<int>(Lane());
  const int part = lane & ~(width - 1);
  const uint64_t* const words = Exchange(mask, word, what);
  if (from < part || from >= part + width) return value;
  if ((mask >> from & 1) == 0) {
    Fail(std::string(what) + " reads lane " + std::to_string(from) + ", which its mask leaves out");
  }
  std::memcpy(&value, &words[from], sizeof(T));
  return value;
}

template <typename Combine>
unsigned WarpReduce(unsigned mask, unsigned value, const char* what, Combine combine) {
  const uint64_t* const words = Exchange(mask, value, what);
  unsigned result = value;  // the loop skips it, because a sum must not count it twice
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) != 0 && lane != Lane()) {
      result = combine(result, static_cast<unsigned>(words[lane]));
    }
  }
  return result;
}

}  // namespace tokamak::cuda::emulation

template <typename T>
[[gnu::always_inline]] inline T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  const int part = static_cast<int>(tokamak::cuda::emulation::Lane()) & ~(width - 1);
  return tokamak::cuda::emulation::Shuffle(mask, value, part | (from & (width - 1)), width,
                                           "__shfl_sync");
}
template <typename T>
[[gnu::always_inline]] inline T __shfl_xor_sync(unsigned mask, T value, int distance,
                                                int width = 32) {
  const int from = static_cast<int>(tokamak::cuda::emulation::Lane()) ^ distance;
  return tokamak::cuda::emulation::Shuffle(mask, value, from, width, "__shfl_xor_sync");
}
template <typename T>
[[gnu::always_inline]] inline T __shfl_up_sync(unsigned mask, T value, unsigned distance,
                                               int width = 32) {
  const int from = static_cast<int>(tokamak::cuda::emulation::Lane()) - static_cast<int>(distance);
  return tokamak::cuda::emulation::Shuffle(mask, value, from, width, "__shfl_up_sync");
}
template <typename T>
[[gnu::always_inline]] inline T __shfl_down_sync(unsigned mask, T value, unsigned distance,
                                                 int width = 32) {
  const int from = static_cast<int>(tokamak::cuda::emulation::Lane()) + static_cast<int>(distance);
  return tokamak::cuda::emulation::Shuffle(mask, value, from, width, "__shfl_down_sync");
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const uint64_t* const words =
      tokamak::cuda::emulation::Exchange(mask, predicate != 0, "__ballot_sync");
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) != 0 && words[lane] != 0) bits |= 1u << lane;
  }
  return bits;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == mask;
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned value) {
  return tokamak::cuda::emulation::WarpReduce(mask, value, "__reduce_add_sync",
                                              std::plus<unsigned>());
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  return tokamak::cuda::emulation::WarpReduce(
      mask, value, "__reduce_max_sync", [](unsigned a, unsigned b) { return std::max(a, b); });
}

// Atomics. Fibers do not interrupt each other, but the thread sanitizer must see atomics here. For
// the sanitizer they also order memory, as on a GPU only a fence beside them does.
template <typename T>
T atomicAdd(T* at, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*at).fetch_add(value);
}
template <typename T>
T atomicOr(T* at, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*at).fetch_or(value);
}
template <typename T>
T atomicExch(T* at, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*at).exchange(value);
}
template <typename T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  std::atomic_ref<T>(*at).compare_exchange_strong(expected, value);
  return expected;
}
template <typename T>
T atomicMax(T* at, std::type_identity_t<T> value) {
  T old = std::atomic_ref<T>(*at).load();
  while (old < value && !std::atomic_ref<T>(*at).compare_exchange_strong(old, value)) {
  }
  return old;
}

// Loads past the caches, casts, and arithmetic that is never fused.
template <typename T>
T __ldg(const T* at) {
  return *at;
}
template <typename T>
T __ldcg(const T* at) {
  return *at;
}
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline long long __double_as_longlong(double value) { return std::bit_cast<long long>(value); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fdividef(float a, float b) { return a / b; }  // a GPU's is 2 ulp off at most
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __ffs(int bits) {
  return bits == 0 ? 0 : std::countr_zero(static_cast<unsigned>(bits)) + 1;
}
using std::max;
using std::min;
