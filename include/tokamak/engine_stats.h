// Counters of a running engine.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tokamak {

// Counts of durations per bucket. The bucket bounds (seconds) are fixed, so that histograms of
// several servers can be added.
struct LatencyHistogram {
  static constexpr std::array<double, 26> kBounds = {
      0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
      0.5,    0.75,  1,      1.5,   2.5,  5,    10,   20,   40,    60,  120,  300, 600};

  std::array<int64_t, kBounds.size() + 1> counts{};  // [i]: up to kBounds[i]; last: longer
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

// The work of one of several ranks since it was loaded.
struct RankStats {
  int32_t replica = 0;
  int32_t stage = 0;
  int32_t rank = 0;  // of all stages of the replica
  int64_t steps = 0;
  double step_seconds = 0;     // in steps
  double wait_seconds = 0;     // of these, waiting for other ranks
  int64_t received_bytes = 0;  // from other ranks

  friend bool operator==(const RankStats&, const RankStats&) = default;
};

// The state of the engine at one moment between two steps.
struct EngineStats {
  int32_t running = 0;  // sequences
  int32_t waiting = 0;
  int32_t paused = 0;  // requests (Engine::Pause)
  int32_t total_blocks = 0;
  int32_t used_blocks = 0;    // referenced by sequences or steps in flight
  int32_t cached_blocks = 0;  // held only by the prefix cache
  int64_t steps = 0;
  int64_t step_tokens = 0;     // positions computed by all steps
  int64_t prefill_tokens = 0;  // of these, prompt positions; counted again after a preemption
  int64_t kv_bytes_read = 0;   // KV cache read by attention, sliding windows considered
  int64_t prompt_tokens = 0;   // of all admitted requests
  int64_t generated_tokens = 0;
  int64_t drafts = 0;           // verified by steps (speculative decoding)
  int64_t accepted_drafts = 0;  // of those, generated
  // The same by a draft's index among those of its sequence in the step.
  std::vector<int64_t> drafts_at;
  std::vector<int64_t> accepted_drafts_at;
  // Estimate, for steps of one sequence alone: how much longer the same tokens would have taken
  // without drafts, by the steps without drafts that were measured last. Negative if drafts cost
  // more than they gave.
  double saved_seconds = 0;
  int64_t queried_prompt_tokens = 0;  // looked up in the prefix cache
  int64_t cached_prompt_tokens = 0;   // of those, found
  int64_t preemptions = 0;
  int64_t images_encoded = 0;      // by steps; an image that was evicted is encoded again
  int64_t image_rows_evicted = 0;  // from the encoder cache, to make room for other images
  int32_t image_rows_cached = 0;   // in the encoder cache now
  // For each MoE layer, in order: positions computed by each expert.
  std::vector<std::vector<int64_t>> expert_positions;
  int64_t decode_steps = 0;  // steps in which every sequence computes one position after its prompt
  // For each MoE layer: experts with at least one position, added up over all decode steps.
  std::vector<int64_t> decode_experts;
  // Finished requests by FinishReason. A request counts under the greatest reason of its choices.
  std::array<int64_t, 4> ended_requests{};
  // Measured from Submit, with one entry per request.
  LatencyHistogram queue_time;           // until it is first scheduled
  LatencyHistogram time_to_first_token;  // until the first token of any choice
  LatencyHistogram end_to_end;           // until it ends, for any reason
  // Phases of RequestTimings, entered at the end of each request that got a token.
  LatencyHistogram prefill_time;
  LatencyHistogram decode_time;
  // One entry per token that is not the first of its choice.
  LatencyHistogram inter_token;
  double seconds_since_progress = 0;  // since a step last finished; 0 when idle
  // While the engine starts its executor again after an error: that error. Requests wait meanwhile.
  std::string restarting = {};
  // With several ranks or replicas. Ranks in worker processes report ten times a second, with their
  // steps.
  std::vector<RankStats> ranks;
};

// Positions of the layer's busiest expert divided by the mean over its experts: from 1 (balanced)
// to the number of experts (one does everything). 0 if there are no positions.
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
