// Reads the streams of OpenAI-compatible servers: server-sent events (WHATWG HTML, section 9.2) and
// their data. All input is untrusted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "tokamak/status.h"

namespace tokamak::loadgen {

// Splits a byte stream into events.
class EventStream {
 public:
  static constexpr size_t kMaxEventBytes = size_t{1} << 20;

  // Calls `on_data` with the data of each event that `bytes` complete: its "data" fields, one per
  // line. Other fields and comments are dropped. kDataLoss if an event or a line is too long.
  Status Feed(std::string_view bytes, FunctionRef<Status(std::string_view data)> on_data);

 private:
  Status EndLine(FunctionRef<Status(std::string_view data)> on_data);

  std::string line_;  // incomplete
  std::string data_;  // of the current event; each line with its end
  bool after_cr_ = false;
};

// One chunk of a completion or a chat completion.
struct StreamedChunk {
  bool done = false;      // "[DONE]": the stream is complete
  bool finished = false;  // a choice has a finish_reason
  std::string text;       // of all choices: content, reasoning, tool calls
  struct Usage {
    int64_t prompt_tokens = 0;
    int64_t cached_tokens = 0;
    int64_t completion_tokens = 0;
  };
  std::optional<Usage> usage;
};

// kDataLoss if the data are not such a chunk; kInternal, with its message, for an error object.
Result<StreamedChunk> ParseStreamedChunk(std::string_view data);
// Returns the message in an error's body, or else the beginning of the body.
std::string ErrorMessage(std::string_view body);

}  // namespace tokamak::loadgen
