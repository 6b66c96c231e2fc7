// How large a request may be in each of its parts. What has no flag is a constant here, because a
// request beyond it is a mistake or an attack on any server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "server/openai_request.h"
#include "tokamak/status.h"

namespace tokamak {

struct RequestLimits {
  int32_t max_choices = 128;      // n, times the number of prompts
  int32_t max_output_tokens = 0;  // per choice; 0: as many as the context holds
  // Logprobs, alternatives counted, that an answer which is not streamed may grow to: each takes
  // about 10 bytes until its end (40 where there are no alternatives), and 60 to 80 in its text.
  size_t max_logprobs = size_t{1} << 21;
};

inline constexpr int kMaxJsonDepth = 32;           // nested arrays and objects
inline constexpr size_t kMaxJsonValues = 1 << 20;  // in one body: about 100 MB once parsed
inline constexpr size_t kMaxEmbeddingInputs = 2048;
inline constexpr size_t kMaxStops = 64;        // strings in `stop`
inline constexpr size_t kMaxStopBytes = 4096;  // each of them
inline constexpr size_t kMaxLogitBias = 4096;  // entries
inline constexpr size_t kMaxCacheSaltBytes = 65536;

// What a parser's memory and stack depend on, found without parsing: kInvalidArgument for a body
// that is beyond kMaxJsonDepth or kMaxJsonValues.
Status CheckJsonShape(std::string_view body);

// kInvalidArgument whose message starts with the JSON path. A call that does not say how many
// tokens it wants gets at most the limit.
Status ApplyLimits(const RequestLimits& limits, CompletionCall& call);

}  // namespace tokamak
