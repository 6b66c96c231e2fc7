#include "loadgen/event_stream.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/json/json_value.h"

namespace tokamak::loadgen {
namespace {

constexpr size_t kShownBytes = 200;

// Returns a member of an object; null if it is absent or `json` is not an object.
const JsonValue& Member(const JsonValue& json, const char* name) {
  static const JsonValue kNull;
  const JsonValue* found = json.Find(name);
  return found == nullptr ? kNull : *found;
}

// The elements of an array; none if `json` is not an array.
std::span<const JsonValue> Elements(const JsonValue& json) {
  const JsonValue::Array* array = json.AsArray();
  return array == nullptr ? std::span<const JsonValue>() : *array;
}

JsonValue Parse(std::string_view text) { return JsonValue::Parse(text, {}).value_or(JsonValue()); }

// At most a billion, so that sums do not overflow.
int64_t Count(const JsonValue& json, const char* name) {
  const double count = Member(json, name).AsNumber().value_or(0);
  return static_cast<int64_t>(std::clamp(count, 0.0, 1e9));
}

void AppendText(const JsonValue& value, std::string* text) {
  if (const std::string* piece = value.AsString()) *text += *piece;
}

// Tool calls count as output, too.
void AppendCalls(const JsonValue& calls, std::string* text) {
  for (const JsonValue& call : Elements(calls)) {
    AppendText(Member(Member(call, "function"), "name"), text);
    AppendText(Member(Member(call, "function"), "arguments"), text);
  }
}

std::string Beginning(std::string_view text) { return std::string(text.substr(0, kShownBytes)); }

}  // namespace

Status EventStream::Feed(std::string_view bytes,
                         FunctionRef<Status(std::string_view data)> on_data) {
  while (!bytes.empty()) {
    if (std::exchange(after_cr_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    if (line_.size() + data_.size() + end > kMaxEventBytes) {
      return DataLoss("the server sent an event of more than {} bytes", kMaxEventBytes);
    }
    line_ += bytes.substr(0, end);
    if (end == bytes.size()) break;
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    RETURN_IF_ERROR(EndLine(on_data));
  }
  return Status();
}

Status EventStream::EndLine(FunctionRef<Status(std::string_view data)> on_data) {
  const std::string line = std::exchange(line_, std::string());
  if (line.empty()) {
    std::string data = std::exchange(data_, std::string());
    if (data.empty()) return Status();
    data.pop_back();
    return on_data(data);
  }
  std::string_view value = line;
  const size_t colon = std::min(value.find(':'), value.size());
  if (value.substr(0, colon) != "data") return Status();
  value.remove_prefix(std::min(colon + 1, value.size()));
  if (value.starts_with(' ')) value.remove_prefix(1);
  data_ += value;
  data_ += '\n';
  return Status();
}

Result<StreamedChunk> ParseStreamedChunk(std::string_view data) {
  StreamedChunk chunk;
  if (data == "[DONE]") {
    chunk.done = true;
    return chunk;
  }
  const JsonValue json = Parse(data);
  if (!json.is_object()) {
    return DataLoss("the server sent an event that is not a JSON object: {}", Beginning(data));
  }
  if (!Member(json, "error").is_null()) return Internal("the server: {}", ErrorMessage(data));
  for (const JsonValue& choice : Elements(Member(json, "choices"))) {
    AppendText(Member(choice, "text"), &chunk.text);
    const JsonValue& delta = Member(choice, "delta");
    AppendText(Member(delta, "reasoning_content"), &chunk.text);
    AppendText(Member(delta, "reasoning"), &chunk.text);
    AppendText(Member(delta, "content"), &chunk.text);
    AppendCalls(Member(delta, "tool_calls"), &chunk.text);
    if (Member(choice, "finish_reason").is_string()) chunk.finished = true;
  }
  if (const JsonValue& usage = Member(json, "usage"); usage.is_object()) {
    chunk.usage = {.prompt_tokens = Count(usage, "prompt_tokens"),
                   .cached_tokens = Count(Member(usage, "prompt_tokens_details"), "cached_tokens"),
                   .completion_tokens = Count(usage, "completion_tokens")};
  }
  return chunk;
}

std::string ErrorMessage(std::string_view body) {
  const JsonValue json = Parse(body);
  const JsonValue& error = Member(json, "error");
  const std::string* message = (error.is_object() ? Member(error, "message") : error).AsString();
  return Beginning(message == nullptr ? body : *message);
}

}  // namespace tokamak::loadgen
