// CostModel: predicts how long a step takes, from the steps measured so far.
#pragma once

#include <array>
#include <cstdint>

namespace tokamak {

// The quantities that determine a step's time.
struct StepCost {
  int64_t tokens = 0;
  int64_t keys = 0;  // sum over tokens of the positions each attends to

  void Add(int32_t start, int32_t num_tokens) {
    tokens += num_tokens;
    keys += int64_t{num_tokens} * start + int64_t{num_tokens} * (num_tokens + 1) / 2;
  }
};

// seconds = a + b * tokens + c * keys, fitted by least squares with exponential forgetting, so that
// it follows clock speeds and machine load. Deterministic. Engine thread only.
class CostModel {
 public:
  void Observe(const StepCost& step, double seconds);
  // Returns 0 before the first observation. Never falls as tokens or keys grow.
  double Predict(const StepCost& step) const;

  // Of a further token, without its keys.
  double token_seconds() const { return coefficients_[1] / 64; }

  // The most tokens, up to `wanted`, that a row from position `start` can add to `step` while the
  // prediction stays within `seconds`.
  int32_t MaxTokens(const StepCost& step, int32_t start, int32_t wanted, double seconds) const;

 private:
  void Fit();

  // Normal equations of the features {1, tokens / 64, keys / 65536}.
  std::array<std::array<double, 3>, 3> products_{};
  std::array<double, 3> targets_{};
  std::array<double, 3> coefficients_{};
};

}  // namespace tokamak
