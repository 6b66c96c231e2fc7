// Usage and times of a request, for its response and for the access log.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tokamak/request.h"

namespace tokamak {

// Filled by the handler of a request; empty if the engine was not used. Holds no text of clients.
struct RequestNotes {
  std::string id;  // of the response
  std::vector<FinishReason> finish_reasons;
  std::vector<Usage> usage;             // [prompts], latest values
  std::vector<RequestTimings> timings;  // [prompts], latest values

  void NotePrompt(int32_t tokens) {
    usage.push_back({.prompt_tokens = tokens});
    timings.emplace_back();
  }
  void NoteChunk(size_t prompt, const OutputChunk& chunk) {
    // If the engine refuses a request after accepting it, the chunk has no usage.
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
  // Prompts of one request run together: returns their longest times, and the sums of their
  // preemptions, of their drafts and of what these saved.
  RequestTimings TotalTimings() const {
    RequestTimings total;
    for (const RequestTimings& t : timings) {
      total.queued_seconds = std::max(total.queued_seconds, t.queued_seconds);
      total.prefill_seconds = std::max(total.prefill_seconds, t.prefill_seconds);
      total.decode_seconds = std::max(total.decode_seconds, t.decode_seconds);
      total.preemptions += t.preemptions;
      total.steps = std::max(total.steps, t.steps);
      total.drafts += t.drafts;
      total.accepted_drafts += t.accepted_drafts;
      AddEach(t.drafts_at, total.drafts_at);
      AddEach(t.accepted_drafts_at, total.accepted_drafts_at);
      total.saved_seconds += t.saved_seconds;
    }
    return total;
  }

 private:
  static void AddEach(const std::vector<int32_t>& from, std::vector<int32_t>& to) {
    to.resize(std::max(to.size(), from.size()));
    for (size_t i = 0; i < from.size(); ++i) to[i] += from[i];
  }
};

}  // namespace tokamak
