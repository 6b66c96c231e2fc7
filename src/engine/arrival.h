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
  int32_t priority = 0;          // higher runs first; clients of equal ones in turn
  std::string client;            // as in Request
  // Requests share cached prefixes only with those of equal root: the client's salt, and whatever
  // else changes what a prefix computes to.
  std::string cache_root;
  // One per choice, or none: then chunks carry no text and stop strings are not looked for.
  std::vector<std::unique_ptr<TextDecoder>> decoders;
  std::string label;         // for snapshots
  TimePoint submitted{};     // when the caller gave it, for timings; unset: when the core gets it
  OutputCallback on_output;  // called by the engine thread; must return quickly; may be empty
};

}  // namespace tokamak
