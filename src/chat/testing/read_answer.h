// Reads answers with AnswerParser as they arrive, in pieces. Only for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/json_value.h"
#include "chat/tool_calls.h"

namespace tokamak {

// Reads pieces of `size` bytes; 0: one piece. A special token is written as "~<|end|>". Returns
// "(reasoning)content|name{arguments}|...".
inline std::string ReadAnswer(const std::shared_ptr<const AnswerFormat>& format,
                              std::string_view written, size_t size) {
  std::string text, reasoning, content, calls;
  std::vector<size_t> marks;
  for (const char c : written) {
    if (c == '~') {
      marks.push_back(text.size());
    } else {
      text += c;
    }
  }
  AnswerParser parser(format);
  const auto take = [&](const AnswerPart& part) {
    reasoning += part.reasoning;
    content += part.content;
    for (const ToolCall& call : part.calls) {
      if (!call.name.empty()) calls += "|" + call.name;
      calls += call.arguments;
    }
  };
  if (size == 0) size = text.size();
  for (size_t at = 0; at < text.size(); at += size) {
    std::vector<size_t> here;
    for (const size_t mark : marks) {
      if (mark >= at && mark < at + size) here.push_back(mark - at);
    }
    take(parser.Append(std::string_view(text).substr(at, size), here));
  }
  take(parser.Finish());
  return (reasoning.empty() ? "" : "(" + reasoning + ")") + content + calls;
}

// A text that fits a regular expression of a form of calls.
inline std::string MatchOf(std::string pattern) {
  const size_t count = pattern.find_first_of("?{");
  return count == pattern.npos ? pattern : pattern.erase(count, pattern.find('<', count) - count);
}

// `arguments`: a JSON object.
inline std::string WriteArguments(const StructuredOutput& output, size_t tool,
                                  const std::string& arguments) {
  if (!output.call_parameters) return arguments;
  const StructuredOutput::Parameters& form = *output.call_parameters;
  const std::vector<std::string>& texts = output.calls[tool].text_arguments;
  const std::optional<JsonValue> object = JsonValue::Parse(arguments, {});
  std::string written;
  for (const auto& [name, value] : *object->AsObject()) {
    const bool is_text = std::find(texts.begin(), texts.end(), name) != texts.end();
    written += MatchOf(form.before_name) + name + MatchOf(form.after_name) +
               (is_text ? *value.AsString() : value.Dump()) + MatchOf(form.after_value);
  }
  return written + MatchOf(form.end);
}

// Writes calls of the tools with these indices and arguments as `output` has them.
inline std::string WriteCalls(const StructuredOutput& output,
                              const std::vector<std::pair<size_t, std::string>>& calls) {
  std::string text = output.calls_begin;
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto& [tool, arguments] = calls[i];
    const StructuredOutput::Tag& call = output.calls[tool];
    if (i > 0) text += MatchOf(output.call_separator.value());
    text += call.begin + WriteArguments(output, tool, arguments) + call.end;
    const size_t id = call.id.empty() ? text.npos : text.find("{id}");
    if (id != text.npos) text.replace(id, 4, call.id.starts_with("[0-9]") ? "7" : "abcdefgh7");
  }
  return text + output.calls_end;
}

inline void ExpectRead(const std::shared_ptr<const AnswerFormat>& format,
                       const std::string& written, const std::string& expected) {
  for (size_t size = 0; size < 40; ++size) {
    ASSERT_EQ(ReadAnswer(format, written, size), expected) << written << "\nin pieces of " << size;
  }
}

}  // namespace tokamak
