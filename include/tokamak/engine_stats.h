// Counters of an engine at work.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tokamak {

// How many durations fell between which bounds. The bounds, in seconds, are the same for all, so
// that histograms of several servers can be added.
struct LatencyHistogram {
  static constexpr std::array<double, 26> kBounds = {
      0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
      0.5,    0.75,  1,      1.5,   2.5,  5,    10,   20,   40,    60,  120,  300, 600};

  std::array<int64_t, kBounds.size() + 1> counts{};  // [i]: up to kBounds[i]; the last: the rest
  double sum = 0;                                    // seconds

  void Observe(double seconds) {
    const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
    ++counts[static_cast<size_t>(bound - kBounds.begin())];
    sum += seconds;
  }
  int64_t count() const {
    int64_t total = 0;
    for (const int64_t n : counts) total += n;
    return total;
  }
};

// A moment's view of the engine's work: everything is of the same moment, between two steps.
struct EngineStats {
  int32_t running = 0;  // sequences
  int32_t waiting = 0;
  int32_t paused = 0;  // requests (Engine::Pause)
  int32_t total_blocks = 0;
  int32_t used_blocks = 0;    // held by running sequences
  int32_t cached_blocks = 0;  // held by the prefix cache alone
  int64_t steps = 0;
  int64_t step_tokens = 0;     // positions that these computed
  int64_t prefill_tokens = 0;  // of which prompts, again after a preemption
  int64_t kv_bytes_read = 0;   // of the KV cache by their attention, windows considered
  int64_t prompt_tokens = 0;   // of all requests taken in
  int64_t generated_tokens = 0;
  int64_t queried_prompt_tokens = 0;  // looked up in the prefix cache
  int64_t cached_prompt_tokens = 0;   // and found there
  int64_t preemptions = 0;
  // How many positions of the steps went to each expert, for each layer with experts, in order.
  std::vector<std::vector<int64_t>> expert_positions;
  // Requests that have ended, by FinishReason; of a request's choices the greatest counts.
  std::array<int64_t, 4> ended_requests{};
  // One entry per request, all from its Submit on but for the two phases.
  LatencyHistogram queue_time;           // when it is first scheduled
  LatencyHistogram time_to_first_token;  // at the first token of any choice
  LatencyHistogram end_to_end;           // when it ends, however it does
  LatencyHistogram prefill_time;         // when it ends, if it had a token:
  LatencyHistogram decode_time;          // see RequestTimings
  // One entry per token that is not the first of its choice.
  LatencyHistogram inter_token;
  double seconds_since_progress = 0;  // since a step last retired while there was work; 0 when idle
};

// How unevenly a layer's experts share its positions: what the busiest one got, over the mean. 1
// when all got the same, as many as there are experts when one got everything; 0 before there is
// any.
inline double ExpertImbalance(const std::vector<int64_t>& positions) {
  int64_t sum = 0, most = 0;
  for (const int64_t n : positions) {
    sum += n;
    most = std::max(most, n);
  }
  if (sum == 0) return 0;
  return static_cast<double>(most) * static_cast<double>(positions.size()) /
         static_cast<double>(sum);
}

}  // namespace tokamak
