// The sampler's state on the device, the arguments of its kernels, and their results.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/sampling/dry.h"

namespace tokamak::cuda {

inline constexpr int kRowsPerLaunch = 256;  // they travel as the kernel's argument

// An entry of logit_bias. Entries of one token lie side by side, in the order of the request.
struct TokenBias {
  int32_t token;
  float bias;
  float raw;  // in the first entry of a token: its logit from before any change
};

// A slot's parameters: SamplingParams, and where its lists are. Device memory.
struct DeviceSlot {
  uint64_t seed;
  int32_t choice;
  float temperature;  // 0: greedy
  float dynatemp_range, dynatemp_exponent;
  float top_n_sigma;  // 0: off
  int32_t top_k;      // 0: off
  float top_p, min_p, typical_p;
  float xtc_probability, xtc_threshold;
  float repetition_penalty, presence_penalty, frequency_penalty;
  int32_t num_prompt, min_tokens;
  int32_t top_logprobs;  // -1: none
  int32_t window;        // last tokens that penalties see; 0: all
  int32_t num_biases, num_stops;
  TokenBias* biases;
  const int32_t* stops;
  const uint32_t* allowed;  // [mask_words], or null: all tokens are
  // The tokens of bad word i begin behind those of word i - 1 and end before bad_word_ends[i].
  int32_t num_bad_words;
  const int32_t* bad_word_ends;
  const int32_t* bad_word_tokens;
  // Both [vocab_size], or null without penalties. counts: see CountedTokens. raw: the logits that
  // penalties have changed, from before the penalty; kept if logprobs are wanted.
  int32_t* counts;
  float* raw;
  // DRY looks at so many last tokens; 0: it is off.
  int32_t dry_window;
  float dry_multiplier, dry_base;
  int32_t dry_allowed_length, dry_longest_match;
  sampling::DryBreakers dry_breakers;
  // Both [vocab_size]. dry_lengths: zeros between draws. dry_raw: the logits from before any
  // change, kept if logprobs are wanted.
  int32_t* dry_lengths;
  float* dry_raw;
  // The last tokens, at least as many as `window`, `dry_window` and bad words need, or null: the
  // one at position p has index p & history_mask.
  int32_t* history;
  int32_t history_mask;
};

// How an entry of DeviceSlot::counts represents a token's occurrences. Without a window: whether
// there are any, and those in the output. With a window (of less than 2^16 tokens): all within it
// in the lower half, and those in the output in the upper half.
struct CountedTokens {
  int32_t one_prompt, one_output;
  bool whole;

  constexpr explicit CountedTokens(int32_t window)
      : one_prompt(1), one_output(window == 0 ? 2 : 1 << 16), whole(window == 0) {}
  constexpr int32_t Plus(int32_t entry, bool in_output) const {
    const int32_t seen = whole ? entry | one_prompt : entry + one_prompt;
    return in_output ? seen + one_output : seen;
  }
  // With a window only.
  constexpr int32_t Minus(int32_t entry, bool in_output) const {
    return entry - one_prompt - (in_output ? one_output : 0);
  }
  constexpr int32_t Outputs(int32_t entry) const {
    return static_cast<int32_t>(static_cast<uint32_t>(entry) / static_cast<uint32_t>(one_output));
  }
};

// A token that is one of the most likely, and its logit.
struct TopToken {
  int32_t id;
  float logit;
};

// The result of a row, in pinned host memory. It becomes a SampleResult.
struct SampleRecord {
  int32_t health;
  int32_t token;
  float logprob;
  int32_t num_top;  // -1: no logprobs
  float max;        // log-softmax of a logit is (logit - max) - log_total
  double log_total;
  // [as many as logprobs or candidates ask for], in any order; set by the host
  TopToken* top;
  int32_t num_candidates;  // SampleRow::num_candidates; set by the host
};

inline constexpr int32_t kNoDraft = -1;    // in SampleArgs::drafts
inline constexpr int32_t kUnhealthy = -1;  // in SampleArgs::drawn

// The place for the proposals of a launch; null if it draws tokens. See Sampler::Propose.
struct ProposalArgs {
  int32_t* tokens = nullptr;  // [slot, max_proposals]
  int32_t max_proposals = 0;
  int32_t number = 0;
  double least_logprob = 0;
};

struct SampleArgs {
  float* logits;  // [num_rows, vocab_size]
  int64_t logits_stride;
  int32_t vocab_size;
  DeviceSlot* slots;
  int32_t* last;          // [slot], the token last drawn
  const uint32_t* masks;  // [mask, mask_words], or null
  int32_t mask_words;
  SampleRecord* records;  // [num_rows]
  // Null, or [num_rows]: the draft that follows a row's token, or kNoDraft behind the last draw of
  // a slot. Draws of a slot are consecutive rows of one launch.
  const int32_t* drafts;
  int32_t* drawn;       // [num_rows], with drafts: each row's token or kUnhealthy
  bool any_candidates;  // rows may ask for them (SampleRecord::num_candidates)
  double acceptance;    // with drafts: SamplerShape::synthetic_acceptance, or -1
  ProposalArgs proposals;
  int parts;  // CTAs per row; LaunchSample chooses
  struct Row {
    int32_t slot, position, mask;  // mask -1: none
  };
  Row rows[kRowsPerLaunch];
};
// num_rows <= kRowsPerLaunch. With drafts a second kernel decides which draws count.
cudaError_t LaunchSample(SampleArgs args, int num_rows, cudaStream_t stream);

struct ScoreArgs {
  const float* logits;
  int64_t logits_stride;
  int32_t vocab_size;
  int32_t top;
  SampleRecord* records;
  int32_t tokens[kRowsPerLaunch];
};
cudaError_t LaunchScore(const ScoreArgs& args, int num_rows, cudaStream_t stream);

// slots[slot] = value, last[slot] = 0, in stream order.
cudaError_t LaunchSetSlot(DeviceSlot* slots, int32_t* last, int32_t slot, const DeviceSlot& value,
                          cudaStream_t stream);

// Adds a history, or the part in a window, to counts that are zero.
cudaError_t LaunchCountTokens(const int32_t* tokens, int32_t num_tokens, int32_t num_prompt,
                              int32_t window, int32_t* counts, cudaStream_t stream);

// token_ids[index] = last[slot * stride], or 0 if that is negative.
struct FillArgs {
  int32_t* token_ids;
  const int32_t* last;
  int32_t stride;
  int32_t num_fills;
  struct Fill {
    int32_t slot, index;
  };
  Fill fills[kRowsPerLaunch];
};
cudaError_t LaunchFillTokens(const FillArgs& args, cudaStream_t stream);

}  // namespace tokamak::cuda
