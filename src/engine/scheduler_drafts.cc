// The part of Scheduler that predicts what drafts cost and gain.
#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/scheduler.h"

namespace tokamak {

std::vector<int32_t> Scheduler::ChooseAcrossSteps(std::vector<std::vector<double>> chances,
                                                  int32_t most,
                                                  FunctionRef<double(int32_t)> seconds) const {
  const auto none = [](int32_t count) { return count == 0; };
  if (!pass_.prefills && static_cast<int32_t>(chances.size()) == pass_.num_decodes) {
    std::vector<int32_t> counts = ChooseDrafts(
        chances, most, pass_.num_decodes,
        [&](int32_t count) { return seconds(count) + (count > 0 ? gap_seconds_ : 0); },
        step_times_->noise());
    if (std::none_of(counts.begin(), counts.end(), none)) return counts;
  }
  // Others run in the steps between. Compares `depth` steps: a sequence draws in all of them (with
  // several stages, in its turns), or in the first with drafts.
  const auto between = static_cast<double>(options_.depth - 1);
  const double missed = static_cast<double>(options_.depth) / options_.stages - 1;
  const auto gain = [missed](const std::vector<double>& chance, size_t count) {
    return std::accumulate(chance.begin(), chance.begin() + static_cast<std::ptrdiff_t>(count),
                           -missed);
  };
  int32_t drafting = 0;
  for (std::vector<double>& chance : chances) {
    if (gain(chance, chance.size()) <= 0) chance.clear();
    drafting += chance.empty() ? 0 : 1;
  }
  const double plain = seconds(0);
  const double all = options_.depth * pass_.num_decodes;
  std::vector<int32_t> counts(chances.size());
  if (drafting == 0 || plain <= 0) return counts;
  const auto together = [&](int32_t count) { return seconds(count) + between * plain; };
  counts = ChooseDrafts(chances, most, static_cast<int32_t>(all - missed * drafting), together,
                        step_times_->noise());
  double tokens = all;
  int32_t total = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double more = gain(chances[i], static_cast<size_t>(counts[i]));
    if (more <= 0) counts[i] = 0;
    if (counts[i] > 0) tokens += more;
    total += counts[i];
  }
  if (tokens * options_.depth * plain <= all * together(total))
    std::fill(counts.begin(), counts.end(), 0);
  return counts;
}

double Scheduler::DraftSeconds(int32_t num_drafts) const {
  const double token_seconds = costs_->token_seconds();
  const double measured = step_times_->Predict(pass_.num_decodes, num_drafts, token_seconds);
  if (!pass_.prefills) return measured;
  // Next to prompts a draft costs at least as much as one of their tokens, which needs no logits.
  const double plain = step_times_->Predict(pass_.num_decodes, 0, token_seconds);
  return std::max(measured, plain + num_drafts * token_seconds);
}

}  // namespace tokamak
