// How the tokens of a request are chosen and when its generation ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tokamak/status.h"

namespace tokamak {

// Fields are applied to the logits in this order: logit_bias, repetition / presence / frequency
// penalties, min_tokens; then temperature; then top_k, typical_p, top_p, min_p on the resulting
// distribution; then one draw.
struct SamplingParams {
  float temperature = 1.0f;         // >= 0; 0 is greedy, the lowest id among equals
  int32_t top_k = 0;                // >= 0; keep the k most likely tokens; 0 is off
  float top_p = 1.0f;               // (0, 1]; keep the smallest set whose probability reaches it
  float min_p = 0.0f;               // [0, 1]; drop tokens below min_p × the best probability
  float typical_p = 1.0f;           // (0, 1]; locally typical sampling, arXiv:2202.00666
  float repetition_penalty = 1.0f;  // > 0; arXiv:1909.05858, over prompt and output
  float presence_penalty = 0.0f;    // [-2, 2]; subtracted once for a token already in the output
  float frequency_penalty = 0.0f;   // [-2, 2]; subtracted per occurrence in the output
  std::vector<std::pair<int32_t, float>> logit_bias =
      {};                             // token id, [-100, 100] added to its logit
  std::optional<uint64_t> seed = {};  // absent: chosen by the engine and returned with the response

  int32_t n = 1;                             // continuations of the same prompt, in [1, 128]
  std::optional<int32_t> max_tokens = {};    // absent: up to the context's end; 0: only the prompt
  int32_t min_tokens = 0;                    // no end of generation before this many
  std::vector<std::string> stop = {};        // generation ends before the first of these
  std::vector<int32_t> stop_token_ids = {};  // generation ends at one of these, not emitted
  bool ignore_eos = false;                   // do not end at the model's own end tokens
  // Special tokens that the text shows, as stop strings see it; it leaves the others out.
  std::vector<int32_t> shown_special_tokens = {};
  std::optional<int32_t> logprobs = {};         // [0, 20] alternatives per generated token
  std::optional<int32_t> prompt_logprobs = {};  // [0, 20] alternatives per prompt token
};

// What a checkpoint's authors recommend (generation_config.json), for what a request leaves open.
// Absent: they say nothing.
struct SamplingDefaults {
  std::optional<float> temperature = {};
  std::optional<int32_t> top_k = {};
  std::optional<float> top_p = {};
  std::optional<float> min_p = {};
  std::optional<float> typical_p = {};
  std::optional<float> repetition_penalty = {};
  std::optional<int32_t> max_tokens = {};

  void ApplyTo(SamplingParams& params) const;
  // "temperature 0.6, top_p 0.95"; empty when there are none.
  std::string ToString() const;
};

// OK, or kInvalidArgument whose message starts with the field at fault, e.g. "top_p: must be in
// (0, 1], got 1.5". Token ids are checked against `vocab_size`.
Status Validate(const SamplingParams& params, int32_t vocab_size);

}  // namespace tokamak
