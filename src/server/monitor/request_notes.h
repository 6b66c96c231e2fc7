// What a call took: for its answer and for the access log.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tokamak/request.h"

namespace tokamak {

// Filled by the call's handler; empty where the engine was not asked. Holds no text of clients.
struct RequestNotes {
  std::string id;  // of the answer
  std::vector<FinishReason> finish_reasons;
  std::vector<Usage> usage;             // [prompts], the latest
  std::vector<RequestTimings> timings;  // [prompts], the latest

  void NotePrompt(int32_t tokens) {
    usage.push_back({.prompt_tokens = tokens});
    timings.emplace_back();
  }
  void NoteChunk(size_t prompt, const OutputChunk& chunk) {
    // Those that the engine refuses after all come without.
    if (chunk.usage.prompt_tokens > 0) usage[prompt] = chunk.usage;
    timings[prompt] = chunk.timings;
    if (chunk.finish_reason) finish_reasons.push_back(*chunk.finish_reason);
  }
  Usage TotalUsage() const {
    Usage total;
    for (const Usage& u : usage) {
      total.prompt_tokens += u.prompt_tokens;
      total.cached_tokens += u.cached_tokens;
      total.completion_tokens += u.completion_tokens;
    }
    return total;
  }
  // Of several prompts the longest times, for they run together; their preemptions are added up.
  RequestTimings TotalTimings() const {
    RequestTimings total;
    for (const RequestTimings& t : timings) {
      total.queued_seconds = std::max(total.queued_seconds, t.queued_seconds);
      total.prefill_seconds = std::max(total.prefill_seconds, t.prefill_seconds);
      total.decode_seconds = std::max(total.decode_seconds, t.decode_seconds);
      total.preemptions += t.preemptions;
      total.steps = std::max(total.steps, t.steps);
    }
    return total;
  }
};

}  // namespace tokamak
