// Random weights, computed from their position: host and device make the same values.
#pragma once

#include <cstdint>

namespace tokamak {

// Approximately N(mean, deviation²), within ±3.5 deviations. constexpr, so that device code can
// call it. Compile without contraction (-ffp-contract=off, nvcc -fmad=false), or bits differ.
struct RandomWeight {
  uint64_t seed = 0;
  float mean = 0;
  float deviation = 0;

  constexpr uint64_t RowSeed(int64_t row) const { return Mix(seed + static_cast<uint64_t>(row)); }
  constexpr float At(uint64_t row_seed, int64_t col) const {
    constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
    return mean + deviation * RoughNormal(Mix(row_seed + static_cast<uint64_t>(col) * kGolden));
  }

 private:
  // SplitMix64 finalizer.
  static constexpr uint64_t Mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // Normalizes the sum of four uniform 16-bit numbers, whose mean is 2 · 65535 and whose variance
  // is about 4 · 65536² / 12.
  static constexpr float RoughNormal(uint64_t bits) {
    const int64_t sum = static_cast<int64_t>((bits & 0xffff) + ((bits >> 16) & 0xffff) +
                                             ((bits >> 32) & 0xffff) + (bits >> 48));
    constexpr float kInverseDeviation = 1.7320508f / 65536;
    return static_cast<float>(sum - 2 * 65535) * kInverseDeviation;
  }
};

}  // namespace tokamak
