#include "loadgen/event_stream.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tokamak::loadgen {
namespace {

using Json = nlohmann::json;

constexpr size_t kShownBytes = 200;

// Returns a member of an object; null if it is absent or `json` is not an object.
const Json& Member(const Json& json, const char* name) {
  static const Json* const kNull = new Json();
  const auto found = json.is_object() ? json.find(name) : json.end();
  return json.is_object() && found != json.end() ? *found : *kNull;
}

// At most a billion, so that sums do not overflow.
int64_t Count(const Json& json, const char* name) {
  const Json& value = Member(json, name);
  return value.is_number() ? static_cast<int64_t>(std::clamp(value.get<double>(), 0.0, 1e9)) : 0;
}

void AppendText(const Json& value, std::string* text) {
  if (value.is_string()) *text += value.get_ref<const std::string&>();
}

// Tool calls count as output, too.
void AppendCalls(const Json& calls, std::string* text) {
  if (!calls.is_array()) return;
  for (const Json& call : calls) {
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
  const Json json = Json::parse(data, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return DataLoss("the server sent an event that is not a JSON object: {}", Beginning(data));
  }
  if (!Member(json, "error").is_null()) return Internal("the server: {}", ErrorMessage(data));
  const Json& choices = Member(json, "choices");
  if (choices.is_array()) {
    for (const Json& choice : choices) {
      AppendText(Member(choice, "text"), &chunk.text);
      const Json& delta = Member(choice, "delta");
      AppendText(Member(delta, "reasoning_content"), &chunk.text);
      AppendText(Member(delta, "reasoning"), &chunk.text);
      AppendText(Member(delta, "content"), &chunk.text);
      AppendCalls(Member(delta, "tool_calls"), &chunk.text);
      if (Member(choice, "finish_reason").is_string()) chunk.finished = true;
    }
  }
  if (const Json& usage = Member(json, "usage"); usage.is_object()) {
    chunk.usage = {.prompt_tokens = Count(usage, "prompt_tokens"),
                   .cached_tokens = Count(Member(usage, "prompt_tokens_details"), "cached_tokens"),
                   .completion_tokens = Count(usage, "completion_tokens")};
  }
  return chunk;
}

std::string ErrorMessage(std::string_view body) {
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  const Json& error = Member(json, "error");
  const Json& message = error.is_object() ? Member(error, "message") : error;
  return Beginning(message.is_string() ? message.get_ref<const std::string&>() : body);
}

}  // namespace tokamak::loadgen
