// The sampler's state on the device, the arguments of its kernels, and their results.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tokamak::cuda {

inline constexpr int kMaxTop = 20;          // alternatives that logprobs can ask for
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
  int32_t num_biases, num_stops;
  TokenBias* biases;
  const int32_t* stops;
  // Both [vocab_size], or null without penalties. counts: 0, or for a token of the history kSeen
  // plus kOneOutput for each time that it was generated. raw: the logits that penalties have
  // changed, from before the penalty; kept if logprobs are wanted.
  int32_t* counts;
  float* raw;
};
inline constexpr int32_t kSeen = 1;
inline constexpr int32_t kOneOutput = 2;

// The result of a row, in pinned host memory. It becomes a SampleResult.
struct SampleRecord {
  int32_t health;
  int32_t token;
  float logprob;
  int32_t num_top;  // -1: no logprobs
  int32_t top_ids[kMaxTop];
  float top_logprobs[kMaxTop];
};

inline constexpr int32_t kNoDraft = -1;    // in SampleArgs::drafts
inline constexpr int32_t kUnhealthy = -1;  // in SampleArgs::drawn

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
  int32_t* drawn;  // [num_rows], with drafts: each row's token or kUnhealthy
  int parts;       // CTAs per row; LaunchSample chooses
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

// Adds a history to counts that are zero.
cudaError_t LaunchCountTokens(const int32_t* tokens, int32_t num_tokens, int32_t num_prompt,
                              int32_t* counts, cudaStream_t stream);

struct FillArgs {
  int32_t* token_ids;
  const int32_t* last;
  int32_t num_fills;
  struct Fill {
    int32_t slot, index;
  };
  Fill fills[kRowsPerLaunch];
};
cudaError_t LaunchFillTokens(const FillArgs& args, cudaStream_t stream);

}  // namespace tokamak::cuda
