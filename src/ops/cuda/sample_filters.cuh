// top_k, typical_p, top_p, min_p and xtc as in ops/sampling/filters.h, by one CTA per row.
//
// Every filter except min_p and xtc cuts the list of tokens in the order of (key, id): it adds up
// weights (1, or probability mass) until they reach a target. Weights are integers, so atomics may
// add them in any order. The first pass adds them up in bands of keys, which spreads the atomics.
// Each further pass, within the band of the cut, finds one digit of its key or id, the highest
// first. That takes 8 passes over the row, which is in the L2 cache then; 12 for typical_p, whose
// keys are doubles.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

#include "ops/cuda/cta.cuh"
#include "ops/cuda/sample_layout.h"
#include "ops/sampling/mass.h"
#include "ops/sampling/xtc.h"

namespace tokamak::cuda {

using sampling::kMassless;
using sampling::Mass;
using sampling::MassOf;

inline constexpr int kBandsPerUnit = 64;
inline constexpr int kNumBands = static_cast<int>(-kMassless) * kBandsPerUnit + 1;
inline constexpr int kBinsPerThread = 2;
static_assert(kNumBands <= kBinsPerThread * kCtaThreads);
inline constexpr int kDigitBits = 8;

// Shared memory of the search for a cut.
struct CutMemory {
  Mass bins[kBinsPerThread * kCtaThreads];
  int found;
  Mass before;
};

// A place in the order: tokens up to and including it stay.
struct Cut {
  uint64_t key = ~uint64_t{0};
  uint32_t id = ~uint32_t{0};
  __device__ bool Keeps(uint64_t other_key, uint32_t other_id) const {
    return other_key < key || (other_key == key && other_id <= id);
  }
};

// A token's place in the order.
struct Place {
  uint64_t key = 0;
  uint64_t id = 0;
  __device__ bool IsBefore(const Place& other) const {
    return key < other.key || (key == other.key && id < other.id);
  }
};

// A logit below or at the largest one of its row. Differences are rounded, so the key is its own.
struct BelowMax {
  float distance;
  uint32_t key;

  __device__ BelowMax(float max, float logit)
      : distance(max - logit), key(Order(max) - Order(logit)) {}

 private:
  // Integers in the order of the logits.
  static __device__ uint32_t Order(float logit) {
    const uint32_t bits = __float_as_uint(logit == 0 ? 0.0f : logit);
    return bits >> 31 != 0 ? ~bits : bits | 1u << 31;
  }
};

// Return the key of a non-negative number: an integer. Keys have the order of the numbers.
inline __device__ uint32_t KeyOf(const BelowMax& logit) { return logit.key; }
inline __device__ uint32_t KeyOf(float distance) {
  return distance == 0 ? 0 : __float_as_uint(distance);
}
inline __device__ uint64_t KeyOf(double distance) {
  return static_cast<uint64_t>(__double_as_longlong(distance));
}
// A band holds neighbours in the order of the keys.
inline __device__ int BandOf(double distance) {
  const double band = distance * kBandsPerUnit;
  return band < kNumBands - 1 ? static_cast<int>(band) : kNumBands - 1;
}

inline __device__ int BandOf(const BelowMax& logit) { return BandOf(double{logit.distance}); }

inline __device__ void ClearBins(CutMemory& memory) {
  for (int i = 0; i < kBinsPerThread; ++i) memory.bins[i * kCtaThreads + threadIdx.x] = 0;
  __syncthreads();
}

// Returns the first bin at which the sum of bins reaches *target, and subtracts the bins before it
// from *target. If it is never reached, returns -1 and leaves *target alone.
inline __device__ int FindBin(CutMemory& memory, Mass* target) {
  if (threadIdx.x == 0) memory.found = -1;
  __syncthreads();
  const Mass first = memory.bins[kBinsPerThread * threadIdx.x];
  const Mass second = memory.bins[kBinsPerThread * threadIdx.x + 1];
  const Mass sum = CtaInclusiveScan(first + second);
  const Mass before = sum - first - second;
  if (before < *target && *target <= sum) {  // true in one thread at most
    const bool in_first = *target <= before + first;
    memory.found = static_cast<int>(kBinsPerThread * threadIdx.x) + (in_first ? 0 : 1);
    memory.before = in_first ? before : before + first;
  }
  __syncthreads();
  const int found = memory.found;
  if (found >= 0) *target -= memory.before;
  __syncthreads();
  return found;
}

// Returns the cut that keeps the fewest tokens whose weight adds up to `target`. visit(f) must call
// f(id, distance, weight) for each of this thread's tokens that take part; Distance is float or
// double and not negative, or BelowMax. Keeps all tokens if the target is never reached.
template <typename Distance, typename Visit>
__device__ Cut FindCut(CutMemory& memory, Mass target, Visit visit) {
  constexpr int kKeyBits = sizeof(KeyOf(std::declval<Distance>())) * 8;
  constexpr int kIdBits = 24;
  ClearBins(memory);
  Mass last_band = 0;  // most tokens may be there, so each thread adds them up by itself first
  visit([&](uint32_t, Distance distance, Mass weight) {
    const int band = BandOf(distance);
    if (band == kNumBands - 1) {
      last_band += weight;
    } else {
      atomicAdd(reinterpret_cast<unsigned long long*>(&memory.bins[band]), weight);
    }
  });
  if (last_band != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(&memory.bins[kNumBands - 1]), last_band);
  }
  __syncthreads();
  const int band = FindBin(memory, &target);
  Cut cut;
  if (band < 0) return cut;
  // Digits of the key, then of the id. `part` is what has been found of it.
  uint64_t part = 0;
  for (int bits = kKeyBits + kIdBits; bits > 0; bits -= kDigitBits) {
    const bool of_key = bits > kIdBits;
    const int shift = (of_key ? bits - kIdBits : bits) - kDigitBits;
    if (bits == kIdBits) {
      cut.key = part;
      part = 0;
    }
    ClearBins(memory);
    visit([&](uint32_t id, Distance distance, Mass weight) {
      if (BandOf(distance) != band) return;
      const uint64_t key = KeyOf(distance);
      if (!of_key && key != cut.key) return;
      const uint64_t value = (of_key ? key : id) >> shift;
      if (value >> kDigitBits != part) return;  // a higher digit differs
      atomicAdd(reinterpret_cast<unsigned long long*>(&memory.bins[value % (1 << kDigitBits)]),
                weight);
    });
    __syncthreads();
    part = part << kDigitBits | static_cast<uint64_t>(FindBin(memory, &target));
  }
  cut.id = static_cast<uint32_t>(part);
  return cut;
}

// The tokens that the filters keep.
struct Survivors {
  bool any_filter = false;  // false: keeps all, whatever the fields below say
  Cut top_k;                // by key -y
  Cut top_p;                // by key -y
  Cut typical;              // by key |y - mean|
  double mean = 0;
  bool massive = false;      // keeps only tokens that have mass
  double floor = -INFINITY;  // the least y that is kept
  Place first;               // by key -y: drops tokens before it

  __device__ bool Keep(float y, uint32_t id) const {
    if (!any_filter) return true;
    if (!(y > -INFINITY) || (massive && y <= kMassless)) return false;
    const uint64_t key = KeyOf(-y);
    return top_k.Keeps(key, id) && top_p.Keeps(key, id) && static_cast<double>(y) >= floor &&
           typical.Keeps(KeyOf(TypicalKey(y)), id) && !Place{key, id}.IsBefore(first);
  }
  __device__ double TypicalKey(float y) const { return fabs(static_cast<double>(y) - mean); }
};

// Returns the least mass that is at least `part` of `total`, and at least 1, so that one token
// stays.
inline __device__ Mass TargetMass(float part, Mass total) {
  const double wanted = ceil(static_cast<double>(part) * static_cast<double>(total));
  const Mass target = static_cast<Mass>(wanted);
  return target < 1 ? 1 : target > total ? total : target;
}

inline __device__ bool CutsTopK(const DeviceSlot& slot, int32_t vocab_size) {
  return slot.top_k > 0 && slot.top_k < vocab_size;
}
inline __device__ bool HasFilters(const DeviceSlot& slot, int32_t vocab_size) {
  return CutsTopK(slot, vocab_size) || slot.typical_p < 1.0f || slot.top_p < 1.0f ||
         slot.min_p > 0.0f || slot.xtc_probability > 0.0f;
}

// Returns what the slot's filters keep at this draw, the same to all threads of the CTA.
// tempered(id) gives a token's y.
template <typename Tempered>
__device__ Survivors ApplyFilters(const DeviceSlot& slot, const DrawKey& key, int32_t vocab_size,
                                  Tempered tempered, CutMemory& memory) {
  Survivors left;
  left.any_filter = HasFilters(slot, vocab_size);
  if (!left.any_filter) return left;
  const auto for_each = [&](auto visit) {
    for (int32_t id = static_cast<int32_t>(threadIdx.x); id < vocab_size; id += kCtaThreads) {
      const float y = tempered(id);
      if (left.Keep(y, static_cast<uint32_t>(id))) visit(static_cast<uint32_t>(id), y);
    }
  };
  if (CutsTopK(slot, vocab_size)) {
    left.top_k = FindCut<float>(memory, static_cast<Mass>(slot.top_k), [&](auto visit) {
      for_each([&](uint32_t id, float y) { visit(id, -y, Mass{1}); });
    });
  }
  if (slot.typical_p < 1.0f) {
    // |−ln p − entropy| is |y − mean y| (see ops/sampling/filters.cc).
    left.massive = true;
    Mass total = 0;
    Mass weighted = 0;
    for_each([&](uint32_t, float y) {
      const Mass mass = MassOf(y);
      total += mass;
      weighted += static_cast<Mass>(static_cast<double>(mass) * static_cast<double>(-y));
    });
    total = CtaSum(total);
    weighted = CtaSum(weighted);
    const double mean = -(static_cast<double>(weighted) / static_cast<double>(total));
    const Cut cut = FindCut<double>(memory, TargetMass(slot.typical_p, total), [&](auto visit) {
      for_each(
          [&](uint32_t id, float y) { visit(id, fabs(static_cast<double>(y) - mean), MassOf(y)); });
    });
    left.mean = mean;
    left.typical = cut;
  }
  if (slot.top_p < 1.0f) {
    left.massive = true;
    Mass total = 0;
    for_each([&](uint32_t, float y) { total += MassOf(y); });
    total = CtaSum(total);
    left.top_p = FindCut<float>(memory, TargetMass(slot.top_p, total), [&](auto visit) {
      for_each([&](uint32_t id, float y) { visit(id, -y, MassOf(y)); });
    });
  }
  if (slot.min_p > 0.0f) {
    double best = -INFINITY;
    for_each([&](uint32_t, float y) { best = fmax(best, static_cast<double>(y)); });
    best = CtaReduce(best, [](double a, double b) { return fmax(a, b); });
    left.floor = best + ExactLog(static_cast<double>(slot.min_p));
  }
  if (slot.xtc_probability > 0.0f && sampling::DecidesXtc(key, slot.xtc_probability)) {
    Mass total = 0;
    for_each([&](uint32_t, float y) { total += MassOf(y); });
    total = CtaSum(total);
    Place last;  // of the most likely tokens
    for_each([&](uint32_t id, float y) {
      const Place place = {KeyOf(-y), id};
      const bool reaches = sampling::ReachesXtc(MassOf(y), total, slot.xtc_threshold);
      if (reaches && last.IsBefore(place)) last = place;
    });
    left.first =
        CtaReduce(last, [](const Place& a, const Place& b) { return a.IsBefore(b) ? b : a; });
  }
  return left;
}

}  // namespace tokamak::cuda
