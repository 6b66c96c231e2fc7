// Limits of a request's size. A limit without a flag is a constant here, because a request beyond
// it is a mistake or an attack on any server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "server/openai/request.h"
#include "tokamak/status.h"

namespace tokamak {

// Enough for the vectors of 2,048 texts with 4,096 dimensions in base64.
inline constexpr int64_t kMaxAnswerBytes = int64_t{48} << 20;

struct RequestLimits {
  int32_t max_choices = 128;      // n, or the beams of a search, times the number of prompts
  int32_t max_output_tokens = 0;  // per choice; 0: as many as fit the context
  // Limits the unsent text of a response: all of it, or in a stream what its client has not got
  // yet. Also limits the part that repeats the request.
  int64_t max_answer_bytes = kMaxAnswerBytes;
};

inline constexpr int kMaxJsonDepth = 32;           // nested arrays and objects
inline constexpr size_t kMaxJsonValues = 1 << 20;  // in one body: about 100 MB once parsed
inline constexpr size_t kMaxEmbeddingInputs = 2048;
inline constexpr size_t kMaxStops = 64;        // strings in `stop`
inline constexpr size_t kMaxStopBytes = 4096;  // of one stop string
inline constexpr size_t kMaxLogitBias = 4096;  // entries
inline constexpr size_t kMaxCacheSaltBytes = 65536;

// Bounds the memory and stack of a parser, without parsing. kInvalidArgument for a body beyond
// kMaxJsonDepth or kMaxJsonValues.
Status CheckJsonShape(std::string_view body);

// kInvalidArgument if a limit is exceeded; the message starts with the JSON path. A request without
// max_tokens gets at most the limit.
Status ApplyLimits(const RequestLimits& limits, CompletionRequest& request);

// kInvalidArgument if a response may not have so many bytes. `path` is the field that asks for
// them.
Status CheckResponseBytes(const RequestLimits& limits, std::string_view path, uint64_t bytes);

}  // namespace tokamak
