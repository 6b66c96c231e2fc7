// Arrival: a request as the engine core takes it, already tokenized.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/text_decoder.h"
#include "engine/token_constraint.h"
#include "step/step_input.h"
#include "tokamak/request.h"

namespace tokamak {

// Positions of a prompt that show an image, or a part of its rows.
struct ArrivalImage {
  ImageSpan span;
  std::shared_ptr<const EncodeImage> image;  // span.image is its id
};

struct Arrival {
  RequestId id = 0;                  // unique among the requests that have not ended
  std::vector<TokenId> prompt;       // at least one token; placeholder tokens where images are
  std::vector<ArrivalImage> images;  // in the order of their positions; spans do not overlap
  SamplingParams sampling;
  std::vector<TokenId> eos_ids;  // the model's own end tokens; sampling.ignore_eos turns them off
  int32_t priority = 0;          // higher runs first; clients of equal priority take turns
  std::string client;            // see Request
  // Requests share cached prefixes only if their roots are equal. A root consists of the client's
  // salt and everything else that changes the computed keys and values.
  std::string cache_root;
  // One per choice. If empty, chunks carry no text and stop strings are ignored.
  std::vector<std::unique_ptr<TextDecoder>> decoders;
  // One per choice if sampling has a structured_output or a thinking_token_budget, otherwise none.
  std::vector<std::unique_ptr<TokenConstraint>> constraints;
  std::string label;      // for snapshots
  bool speculate = true;  // may have drafts
  // When the caller submitted the request, for timings. If unset, the time when the core gets it.
  TimePoint submitted{};
  OutputCallback on_output;  // called on the engine thread; must return quickly; may be empty
};

}  // namespace tokamak
