#include "engine/step_times.h"

#include <algorithm>
#include <cmath>

namespace tokamak {
namespace {

constexpr double kLearn = 0.125;        // weight of a measurement in its entry
constexpr double kLearnScale = 0.0625;  // and in the scale of all entries
constexpr double kLearnNoise = 0.03;    // and in the noise
constexpr double kMostChange = 2;       // a step that took longer was disturbed
// A measurement with drafts counts fully for so many steps, and for nothing after so many.
constexpr double kFreshSteps = 1024;
constexpr double kForgetSteps = 8192;
constexpr int64_t kPlainSteps = 256;  // and one without drafts is taken again after so many

int32_t Index(int32_t tokens) { return std::clamp(tokens, 1, StepTimes::kMaxTokens); }

double Between(int32_t x, int32_t x0, double y0, int32_t x1, double y1) {
  return x0 == x1 ? y0 : y0 + (y1 - y0) * (x - x0) / (x1 - x0);
}

}  // namespace

std::pair<int32_t, int32_t> StepTimes::Table::Around(int32_t tokens) const {
  const auto measured = [this](int32_t i) { return entries[static_cast<size_t>(i)].last > 0; };
  int32_t below = std::min(tokens, largest);
  while (below > 0 && !measured(below)) --below;
  int32_t above = tokens;
  while (above < largest && !measured(above)) ++above;
  return {below, above <= largest ? above : 0};
}

void StepTimes::Observe(int32_t num_decodes, int32_t num_drafts, double seconds) {
  if (!std::isfinite(seconds) || seconds <= 0) return;
  ++num_steps_;
  const int32_t tokens = Index(num_decodes + num_drafts);
  Table& table = num_drafts > 0 ? with_drafts_ : plain_;
  table.largest = std::max(table.largest, tokens);
  Entry& entry = table.entries[static_cast<size_t>(tokens)];
  if (entry.last == 0) {
    entry.seconds = seconds / scale_;
  } else {
    const double ratio =
        std::clamp(seconds / (entry.seconds * scale_), 1 / kMostChange, kMostChange);
    noise_ += kLearnNoise * (std::abs(ratio - 1) - noise_);
    // The first measurements weigh more: one alone may have been disturbed.
    const double learn = std::max(kLearn, 1.0 / static_cast<double>(entry.count + 1));
    const double scale_by = 1 + kLearnScale * (ratio - 1);
    scale_ *= scale_by;
    entry.seconds *= (1 + learn * (ratio - 1)) / scale_by;
  }
  entry.last = num_steps_;
  ++entry.count;
}

double StepTimes::Plain(int32_t tokens, double token_seconds) const {
  const auto at = [this](int32_t i) { return plain_.entries[static_cast<size_t>(i)].seconds; };
  const auto [below, above] = plain_.Around(tokens);
  if (below > 0 && above > 0) return Between(tokens, below, at(below), above, at(above));
  const int32_t nearest = std::max(below, above);
  if (nearest == 0) return 0;
  // A further token costs at most what tokens have cost on average.
  const double slope = std::min(token_seconds / scale_, at(nearest) / nearest);
  return at(nearest) + slope * (tokens - nearest);
}

bool StepTimes::NeedsPlainStep(int32_t num_decodes) const {
  const int32_t decodes = Index(num_decodes);
  const int32_t most = std::min(kMaxTokens, decodes + decodes / 8);
  for (int32_t i = decodes - decodes / 8; i <= most; ++i) {
    const int64_t last = plain_.entries[static_cast<size_t>(i)].last;
    if (last > 0 && num_steps_ - last < kPlainSteps) return false;
  }
  return true;
}

double StepTimes::Predict(int32_t num_decodes, int32_t num_drafts, double token_seconds) const {
  const int32_t decodes = Index(num_decodes);
  const double plain = Plain(decodes, token_seconds);
  if (num_drafts <= 0 || plain == 0) return plain * scale_;
  const int32_t tokens = Index(num_decodes + num_drafts);
  const double untried = plain + std::min(token_seconds / scale_, plain / decodes) *
                                     static_cast<double>(tokens - decodes);
  const auto [below, above] = with_drafts_.Around(tokens);
  // Returns what a measurement says about this step: its excess over `untried`, which fades.
  const auto known = [&](int32_t i) {
    const Entry& entry = with_drafts_.entries[static_cast<size_t>(i)];
    const double at_entry = plain + (untried - plain) * (i - decodes) / num_drafts;
    const double age = static_cast<double>(num_steps_ - entry.last);
    const double weight = (kForgetSteps - age) / (kForgetSteps - kFreshSteps);
    return (entry.seconds - at_entry) * std::clamp(weight, 0.0, 1.0);
  };
  const int32_t first = std::max(below, decodes);  // without drafts there is no excess
  const double first_excess = below > decodes ? known(below) : 0;
  const double excess =
      above > 0 ? Between(tokens, first, first_excess, above, known(above)) : first_excess;
  // Drafts never make a step shorter.
  return std::max(plain, untried + excess) * scale_;
}

}  // namespace tokamak
