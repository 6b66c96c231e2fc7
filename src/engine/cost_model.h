// CostModel: predicts how long a step takes, from the steps measured so far.
#pragma once

#include <array>
#include <cstdint>

namespace tokamak {

// The quantities that determine a step's time.
struct StepCost {
  int64_t tokens = 0;
  int64_t keys = 0;        // sum over tokens of the positions each attends to
  int64_t proposals = 0;   // of a draft model
  int64_t image_rows = 0;  // of images that it encodes

  void Add(int32_t start, int32_t num_tokens, int32_t num_rows = 1) {
    tokens += int64_t{num_tokens} * num_rows;
    keys += (int64_t{num_tokens} * start + int64_t{num_tokens} * (num_tokens + 1) / 2) * num_rows;
  }
};

// seconds = a + b * tokens + c * keys, fitted by least squares with exponential forgetting, so that
// it follows clock speeds and machine load. Proposals are measured apart, because steps may have
// equally many for long, and so are rows of images, because few steps have any. Deterministic.
// Engine thread only.
class CostModel {
 public:
  // `proposing`: the part of `seconds` in which the draft model made the step's proposals.
  void Observe(const StepCost& step, double seconds, double proposing = 0);
  // Returns 0 before the first observation. Never falls as the step's work grows.
  double Predict(const StepCost& step) const;

  // False if the step has work of a kind that no observed step had.
  bool Knows(const StepCost& step) const;

  // Returns the time of one proposal; 0: not known.
  double proposal_seconds() const { return proposal_seconds_; }
  // Returns the time of one more token, without its keys.
  double token_seconds() const { return coefficients_[1] / 64; }

  // The most tokens, up to `wanted`, that a row from position `start` can add to `step` while the
  // prediction stays within `seconds`.
  int32_t MaxTokens(const StepCost& step, int32_t start, int32_t wanted, double seconds) const;

 private:
  void Fit();
  // The part of a step's time that its tokens and keys take.
  double PredictTokens(const StepCost& step) const;
  void ObserveProposals(int64_t count, double seconds);
  void ObserveImages(int64_t num_rows, double seconds);

  // Normal equations of the features {1, tokens / 64, keys / 65536}.
  std::array<std::array<double, 3>, 3> products_{};
  std::array<double, 3> targets_{};
  std::array<double, 3> coefficients_{};
  double proposal_seconds_ = 0;   // of one; 0: unknown
  double image_row_seconds_ = 0;  // the same
};

}  // namespace tokamak
