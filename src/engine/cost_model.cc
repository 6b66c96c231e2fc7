#include "engine/cost_model.h"

#include <algorithm>
#include <cmath>

namespace tokamak {
namespace {

using Features = std::array<double, 3>;

constexpr double kForget = 0.98;  // the last 35 steps have half of the weight

Features MakeFeatures(const StepCost& step) {
  return {1.0, static_cast<double>(step.tokens) / 64.0, static_cast<double>(step.keys) / 65536.0};
}

}  // namespace

void CostModel::Observe(const StepCost& step, double seconds, double proposing) {
  if (!std::isfinite(seconds) || seconds < 0) return;
  proposing = proposing > 0 ? std::min(proposing, seconds) : 0;
  ObserveProposals(step.proposals, proposing);
  seconds -= proposing;
  if (step.image_rows > 0) {
    const double others = PredictTokens(step);
    return ObserveImages(step.image_rows, std::max(0.0, seconds - others));
  }
  const Features x = MakeFeatures(step);
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) products_[i][j] = kForget * products_[i][j] + x[i] * x[j];
    targets_[i] = kForget * targets_[i] + x[i] * seconds;
  }
  Fit();
}

void CostModel::ObserveProposals(int64_t count, double seconds) {
  constexpr double kLearn = 1.0 / 4;
  // Without proposals the time of one cannot be measured again, and it may have been a bad moment.
  constexpr double kForgetWithout = 1.0 / 1024;
  if (count == 0) {
    proposal_seconds_ -= proposal_seconds_ * kForgetWithout;
    return;
  }
  const double one = seconds / static_cast<double>(count);
  proposal_seconds_ += proposal_seconds_ == 0 ? one : (one - proposal_seconds_) * kLearn;
}

void CostModel::ObserveImages(int64_t num_rows, double seconds) {
  constexpr double kLearn = 1.0 / 4;
  const double one = seconds / static_cast<double>(num_rows);
  image_row_seconds_ += image_row_seconds_ == 0 ? one : (one - image_row_seconds_) * kLearn;
}

void CostModel::Fit() {
  // Coordinate descent on the normal equations, with coefficients >= 0, because a cost that falls
  // as work grows would be noise. Starts from the last fit, so that a few sweeps suffice.
  constexpr double kRidge = 1e-9;
  for (int sweep = 0; sweep < 8; ++sweep) {
    for (int i = 0; i < 3; ++i) {
      double rest = targets_[i];
      for (int j = 0; j < 3; ++j) {
        if (j != i) rest -= products_[i][j] * coefficients_[j];
      }
      coefficients_[i] = std::max(0.0, rest / (products_[i][i] + kRidge));
    }
  }
}

double CostModel::PredictTokens(const StepCost& step) const {
  const Features x = MakeFeatures(step);
  return x[0] * coefficients_[0] + x[1] * coefficients_[1] + x[2] * coefficients_[2];
}

double CostModel::Predict(const StepCost& step) const {
  return PredictTokens(step) + static_cast<double>(step.proposals) * proposal_seconds_ +
         static_cast<double>(step.image_rows) * image_row_seconds_;
}

int32_t CostModel::MaxTokens(const StepCost& step, int32_t start, int32_t wanted,
                             double seconds) const {
  int32_t fits = 0;
  int32_t beyond = wanted + 1;
  while (fits + 1 < beyond) {
    const int32_t middle = fits + (beyond - fits) / 2;
    StepCost with = step;
    with.Add(start, middle);
    (Predict(with) <= seconds ? fits : beyond) = middle;
  }
  return fits;
}

bool CostModel::Knows(const StepCost& step) const {
  return products_[0][0] > 0 && (step.proposals == 0 || proposal_seconds_ > 0) &&
         (step.image_rows == 0 || image_row_seconds_ > 0);
}

}  // namespace tokamak
