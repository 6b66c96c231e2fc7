// What OpenAI-compatible servers stream: server-sent events (WHATWG HTML, section 9.2), and what
// their data say. Everything here comes from outside.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "tokamak/status.h"

namespace tokamak::cli {

// Cuts a stream of bytes into events.
class EventStream {
 public:
  static constexpr size_t kMaxEventBytes = size_t{1} << 20;

  // Calls `on_data` with the data of each event that `bytes` complete: its "data" fields, one per
  // line. Other fields and comments are dropped. kDataLoss for an event or a line that is too long.
  Status Feed(std::string_view bytes, FunctionRef<Status(std::string_view data)> on_data);

 private:
  Status EndLine(FunctionRef<Status(std::string_view data)> on_data);

  std::string line_;  // not ended yet
  std::string data_;  // of the event so far, each line with its end
  bool after_cr_ = false;
};

// One chunk of a completion or a chat completion.
struct StreamedChunk {
  bool done = false;      // "[DONE]": nothing follows
  bool finished = false;  // a choice has a finish_reason
  std::string text;       // of all choices: content, reasoning, calls of tools
  struct Usage {
    int64_t prompt_tokens = 0;
    int64_t cached_tokens = 0;
    int64_t completion_tokens = 0;
  };
  std::optional<Usage> usage;
};

// kDataLoss for what is no such chunk; kInternal, with its message, for an error object.
Result<StreamedChunk> ParseStreamedChunk(std::string_view data);
// The message in an error's body, or the beginning of the body.
std::string ErrorMessage(std::string_view body);

}  // namespace tokamak::cli
