// A row of logits as the threads of a CTA, or of a cluster of CTAs, read it together.
#pragma once

#include <climits>
#include <cmath>
#include <cstdint>

#include "ops/cuda/cta.cuh"
#include "ops/cuda/device.cuh"
#include "ops/cuda/ptx.h"
#include "ops/cuda/sample_layout.h"
#include "ops/sampling/mass.h"

namespace tokamak::cuda {

struct Highest {
  float value = -INFINITY;
  int32_t id = INT_MAX;  // the lowest of those

  __device__ void Offer(float other, int32_t other_id) {
    if (other > value || (other == value && other_id < id)) {
      value = other;
      id = other_id;
    }
  }
};

// Combines what all threads of each of `parts` CTAs know, which are a cluster if they are several.
// Every thread gets the result.
template <typename T, typename Combine>
__device__ T ReduceParts(T value, int parts, Combine combine) {
  value = CtaReduce(value, combine);
  if constexpr (ptx::kHasDependents) {
    if (parts == 1) return value;
    struct alignas(T) Storage {  // bytes, because shared memory runs no constructors
      unsigned char bytes[sizeof(T)];
    };
    SHARED(storage, Storage);
    T* const mine = reinterpret_cast<T*>(storage.bytes);
    if (threadIdx.x == 0) *mine = value;
    ptx::SyncCluster();
    for (int part = 0; part < parts; ++part) value = combine(value, *ptx::MapShared(mine, part));
    ptx::SyncCluster();  // all have read
  }
  return value;
}

// One row, and what all threads of its CTA know about it. Several CTAs may share it, each with
// every parts-th piece.
struct Row {
  float* logits;
  int32_t size;
  int part = 0, parts = 1;

  // The thread's first of consecutive pieces, and the distance to the next one.
  __device__ int32_t First() const {
    return part * kCtaThreads + static_cast<int32_t>(threadIdx.x);
  }
  __device__ int32_t Step() const { return parts * kCtaThreads; }

  // Loads logits 4 · quad to 4 · quad + 3; those beyond the row are -∞.
  __device__ void LoadQuad(int32_t quad, float (&to)[4]) const {
    const float* const from = logits + 4 * int64_t{quad};
    const int32_t count = size - 4 * quad;
    if (count >= 4 && reinterpret_cast<uintptr_t>(from) % (4 * sizeof(float)) == 0) {
      LoadFour<F32, true>(from, 4, to);
      return;
    }
#pragma unroll
    for (int32_t j = 0; j < 4; ++j) to[j] = j < count ? from[j] : -INFINITY;
  }

  template <typename F>
  __device__ void ForEach(F visit) const {
    for (int32_t id = First(); id < size; id += Step()) visit(id, logits[id]);
  }

  // Returns the highest logit and its id; an empty Highest if all are -Inf. Sets *usable to whether
  // no logit is NaN or +Inf.
  __device__ Highest Scan(bool* usable) const {
    struct Scanned {
      Highest highest;
      int fine = 1;
    };
    Scanned scanned;
    ForEach([&](int32_t id, float x) {
      if (x > scanned.highest.value) scanned.highest.Offer(x, id);
      if (!(x < INFINITY)) scanned.fine = 0;
    });
    scanned = ReduceParts(scanned, parts, [](Scanned a, const Scanned& b) {
      a.highest.Offer(b.highest.value, b.highest.id);
      a.fine &= b.fine;
      return a;
    });
    *usable = scanned.fine != 0;
    return scanned.highest;
  }
};

// The natural logarithm of the softmax of a row.
struct LogSoftmax {
  float max = 0;
  double log_total = 0;

  LogSoftmax() = default;
  __device__ LogSoftmax(const Row& row, float max) : max(max) {
    sampling::Mass total = 0;
    row.ForEach([&](int32_t, float x) { total += sampling::MassOf(x - max); });
    log_total = sampling::LogOfMass(CtaSum(total));
  }
  __device__ float operator()(float logit) const {
    return static_cast<float>((static_cast<double>(logit) - static_cast<double>(max)) - log_total);
  }
};

}  // namespace tokamak::cuda
