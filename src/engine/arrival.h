// Arrival: a request as the engine core takes it, in tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/text_decoder.h"
#include "step/step_input.h"
#include "tokamak/request.h"

namespace tokamak {

struct Arrival {
  RequestId id = 0;             // unique among the requests that have not ended
  std::vector<TokenId> prompt;  // at least one token
  SamplingParams sampling;
  std::vector<TokenId> eos_ids;  // the model's own end tokens; sampling.ignore_eos turns them off
  int32_t priority = 0;          // higher runs first; equal ones in order of arrival
  // Requests share cached prefixes only with those of equal root: the client's salt, and whatever
  // else changes what a prefix computes to.
  std::string cache_root;
  // One per choice, or none: then chunks carry no text and stop strings are not looked for.
  std::vector<std::unique_ptr<TextDecoder>> decoders;
  OutputCallback on_output;  // called by the engine thread; must return quickly; may be empty
};

// How a request spent its time, for metrics. All zero for phases it did not reach.
struct RequestTimings {
  Duration queued{};   // from Submit until first scheduled
  Duration prefill{};  // until the first token
  Duration decode{};   // from the first token until the last
  int32_t preemptions = 0;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t completion_tokens = 0;
};

}  // namespace tokamak
