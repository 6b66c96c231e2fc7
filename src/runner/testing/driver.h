// Drives a runner through whole requests as an engine would, but with a schedule made of chance:
// random company, chunk sizes, block numbers, preemptions by recomputing and by swapping, shared
// prefixes, and overlap up to the runner's depth. What a request gets must not depend on any of it.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "runner/runner.h"

namespace tokamak::testing {

struct DriverRequest {
  std::vector<TokenId> prompt;
  SamplingSpec sampling;
  int32_t num_generated = 0;
};

struct DriverResult {
  std::vector<TokenId> tokens;
  std::vector<PositionLogprobs> logprobs;
  std::map<int32_t, PositionLogprobs> prompt_logprobs;  // by the position of the token
  bool failed = false;                                  // a row's health was not kOk

  friend bool operator==(const DriverResult&, const DriverResult&) = default;
};

struct DriverOptions {
  uint64_t seed = 0;
  int32_t company = 1;      // requests at the same time
  int32_t chunk = 1 << 20;  // most prompt tokens per row; each row takes 1 to so many
  bool random_chunks = false;
  double recompute = 0;  // chance per step that some sequence is preempted and starts anew
  double swap = 0;       // the same, its blocks kept in the host tier
  double share = 0;      // chance that a request starts from a running sequence's blocks
};

struct DriverCounts {
  int64_t steps = 0;
  int64_t recomputed = 0;
  int64_t swapped = 0;
  int64_t shared = 0;
};

// One result per request. Errors of the runner are CHECKs.
std::vector<DriverResult> Drive(Runner& runner, const std::vector<DriverRequest>& requests,
                                const DriverOptions& options, DriverCounts* counts = nullptr);

}  // namespace tokamak::testing
