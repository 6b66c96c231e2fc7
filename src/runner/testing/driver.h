// Drives a runner through whole requests, as an engine would, on a random schedule: which requests
// share batches, chunk sizes, block numbers, preemption by recomputing or swapping, shared
// prefixes, and overlap up to the runner's depth. None of these may change a request's results.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "runner/runner.h"

namespace tokamak::testing {

struct DriverImage {
  ImageSpan span;
  EncodeImage image;
};

struct DriverRequest {
  std::vector<TokenId> prompt;
  // Requests that show different rows at a position must have different tokens there.
  std::vector<DriverImage> images = {};
  SamplingParams sampling;
  int32_t num_generated = 0;
  int32_t choice = 0;
  // The mask of the first draw; those of later ones have its words in another order. Empty: none.
  std::vector<uint32_t> allowed = {};
};

struct DriverResult {
  std::vector<TokenId> tokens;
  std::vector<TokenLogprobs> logprobs;
  std::map<int32_t, TokenLogprobs> prompt_logprobs;  // by the token's position
  bool failed = false;                               // a row's health was not kOk

  friend bool operator==(const DriverResult&, const DriverResult&) = default;
};

// Models that keep a state per sequence are only recomputed: nothing is swapped, shared or drafted.
struct DriverOptions {
  uint64_t seed = 0;
  int32_t max_concurrent = 1;  // concurrent requests
  int32_t chunk = 1 << 20;     // prompt tokens per row: all, or at random from 1 to this many
  bool random_chunks = false;
  double recompute = 0;  // chance per step of preempting a sequence that then starts again
  double swap = 0;       // the same, with its blocks kept in the host tier
  double forget = 0;     // chance per step of forgetting an image that no row shows
  double share = 0;      // chance that a request starts with a running sequence's blocks
  // The expected results, from which drafts are made, some of them wrong; null: no drafts.
  const std::vector<DriverResult>* drafts = nullptr;
  // The most proposals that a row wants; 0: none. They become the drafts of the next row, apart
  // from a random number of the last ones. Requires a runner with a draft model.
  int32_t proposals = 0;
};

struct DriverCounts {
  int64_t steps = 0;
  int64_t recomputed = 0;
  int64_t swapped = 0;
  int64_t shared = 0;
  int64_t encoded = 0;       // images
  int64_t cut_through = 0;   // images that a row ends in
  int64_t begun_within = 0;  // images that a row begins in, behind their first position
  int64_t mixed = 0;         // steps that draw both with and without masks
  int64_t accepted = 0;      // drafts
  int64_t refused = 0;
  int64_t masked = 0;  // drafts of rows with masks
};

// Returns one result per request. CHECKs that the runner has no errors.
std::vector<DriverResult> Drive(Runner& runner, const std::vector<DriverRequest>& requests,
                                const DriverOptions& options, DriverCounts* counts = nullptr);

}  // namespace tokamak::testing
