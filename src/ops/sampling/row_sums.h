// What top_n_sigma and dynamic temperature derive from sums over a row of logits. The sums are of
// integers, so threads may add in any order. constexpr, for device code.
#pragma once

#include <cstdint>
#include <limits>

#include "ops/sampling/mass.h"

namespace tokamak::sampling {

// Finds which logits are at most n standard deviations below the largest one. Distances from it are
// in units of the greatest one, so they are in [0, 1], and summed up in units of 2^-40.
class SigmaCut {
 public:
  struct Sums {
    uint64_t count = 0, distances = 0, squares = 0;
  };

  // Requires finite logits: the largest and the lowest finite one of the row.
  constexpr SigmaCut(float max, float min)
      : max_(max), scale_(max > min ? 1.0 / (double{max} - double{min}) : 0.0) {}

  constexpr void Add(float finite, Sums* sums) const {
    constexpr double kUnits = 0x1p40;
    const double distance = Distance(finite);
    ++sums->count;
    sums->distances += static_cast<uint64_t>(distance * kUnits);
    sums->squares += static_cast<uint64_t>(distance * distance * kUnits);
  }
  // With the sums over all finite logits of the row.
  constexpr void SetReach(const Sums& sums, float n) {
    const double count = static_cast<double>(sums.count) * 0x1p40;
    const double mean = static_cast<double>(sums.distances) / count;
    const double variance = static_cast<double>(sums.squares) / count - mean * mean;
    reach_squared_ = double{n} * double{n} * (variance > 0 ? variance : 0);
  }
  constexpr bool Keeps(float finite) const {
    const double distance = Distance(finite);
    return distance * distance <= reach_squared_;
  }

 private:
  constexpr double Distance(float x) const { return (double{max_} - double{x}) * scale_; }

  float max_;
  double scale_;
  double reach_squared_ = 0;
};

// The sums for the entropy of a row at temperature 1: with weights e^y, y = logit - max <= 0, it is
// ln Σ weights - Σ weights · y / Σ weights.
struct EntropySums {
  uint64_t count = 0;  // tokens with a finite logit
  Mass total = 0;
  Mass weighted = 0;  // Σ mass · -y; each term is at most e^-1 · 2^40

  constexpr void Add(float y) { Add(y, MassOf(y)); }
  constexpr void Add(float y, Mass mass) {
    ++count;
    total += mass;
    // Of a token without mass, y may be -Inf.
    if (mass > 0) weighted += static_cast<Mass>(static_cast<double>(mass) * -double{y});
  }
};

// Dynamic temperature as in llama.cpp: the entropy's part of the greatest possible one, to the
// power of `exponent`, chooses between temperature - range (at least 0) and temperature + range.
// The result is a normal number, which logits can be divided by.
constexpr float DynamicTemperature(const EntropySums& sums, float temperature, float range,
                                   float exponent) {
  double part = 0;
  if (sums.count > 1) {
    const double entropy = LogOfMass(sums.total) +
                           static_cast<double>(sums.weighted) / static_cast<double>(sums.total);
    part = entropy / ExactLog(static_cast<double>(sums.count));
    part = part < 0 ? 0 : part > 1 ? 1 : part;
  }
  if (exponent == 0.0f) {
    part = 1;
  } else if (exponent != 1.0f && part > 0) {
    const double power = double{exponent} * ExactLog(part);
    part = double{ExactExp(static_cast<float>(power > -80 ? power : -80.0))};
  }
  const double low = temperature > range ? double{temperature} - double{range} : 0.0;
  const double high = double{temperature} + double{range};
  const double dynamic = low + (high - low) * part;
  constexpr double kLeast = double{std::numeric_limits<float>::min()};
  constexpr double kMost = double{std::numeric_limits<float>::max()};
  return static_cast<float>(dynamic < kLeast ? kLeast : dynamic > kMost ? kMost : dynamic);
}

}  // namespace tokamak::sampling
