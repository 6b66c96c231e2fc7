#include "cli/config_file.h"

#include <algorithm>

#include "base/error.h"
#include "base/json/json_value.h"
#include "base/text.h"

namespace tokamak::cli {
namespace {

// Splits "bench latency" or "bench.latency" into words.
std::vector<std::string> SectionOf(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(" \t."), text.size());
    if (end > 0) words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

Result<std::string> ReadValue(std::string_view text, int line) {
  if (!text.starts_with('"')) return std::string(text);
  const std::optional<JsonValue> json = JsonValue::Parse(text, {});
  const std::string* value = json ? json->AsString() : nullptr;
  if (value == nullptr) {
    return InvalidArgument(
        "line {}: a value that begins with a double quote must be a JSON string, such as "
        "\"two\\nlines\"",
        line);
  }
  if (value->find('\0') != std::string::npos) {
    return InvalidArgument("line {}: a value must not contain \\u0000", line);
  }
  return *value;
}

}  // namespace

Result<std::vector<ConfigEntry>> ParseConfig(std::string_view text) {
  std::vector<ConfigEntry> entries;
  std::vector<std::string> section;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark
  int number = 0;
  for (std::string_view line : Split(text, '\n')) {
    ++number;
    line = Trim(line);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[' && line.back() == ']') {
      section = SectionOf(line.substr(1, line.size() - 2));
      continue;
    }
    const size_t equals = line.find('=');
    ConfigEntry entry{.line = number, .section = section, .name = {}, .value = "true"};
    entry.name = Trim(line.substr(0, equals));
    if (equals != std::string_view::npos) {
      ASSIGN_OR_RETURN(entry.value, ReadValue(Trim(line.substr(equals + 1)), number));
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace tokamak::cli
