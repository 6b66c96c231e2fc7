// Reads any text in any format, cut anywhere: the result is the same, and arguments are JSON.
// Harmony drops more than brackets; it must keep every byte that its marks and names do not
// contain.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "chat/json.h"
#include "chat/tool_calls.h"

namespace {

using namespace tokamak;

void Join(AnswerPart part, AnswerPart& whole) {
  whole.reasoning += part.reasoning;
  whole.content += part.content;
  for (ToolCall& call : part.calls) {
    if (call.name.empty()) {
      if (whole.calls.empty()) std::abort();
      whole.calls.back().arguments += call.arguments;
    } else {
      whole.calls.push_back(std::move(call));
    }
  }
}

// Feeds pieces of 1 to `longest` bytes, the same for the same seed; `longest` 0: one piece.
AnswerPart Read(const std::shared_ptr<const AnswerFormat>& format, std::string_view text,
                size_t longest, uint32_t seed = 0) {
  AnswerParser parser(format);
  AnswerPart whole;
  for (size_t at = 0, size = 0; at < text.size(); at += size) {
    seed = seed * 1664525 + 1013904223;
    size = longest == 0 ? text.size() : 1 + (seed >> 16) % longest;
    // A < at an even offset begins a special token, if it looks like one.
    std::vector<size_t> marks;
    for (size_t i = at; i < std::min(at + size, text.size()); ++i) {
      if (text[i] == '<' && i % 2 == 0) marks.push_back(i - at);
    }
    Join(parser.Append(text.substr(at, size), marks), whole);
  }
  Join(parser.Finish(), whole);
  return whole;
}

// Counts each byte that occurs in no mark, role, channel or type of Harmony, and is not one of the
// braces that an empty call gets.
std::array<int, 256> CountKept(std::string_view text) {
  std::array<int, 256> counts{};
  for (const char c : text) {
    const bool in_names = (c >= 'a' && c <= 'z') ||
                          std::string_view("<|>=.{} \t\r\n").find(c) != std::string_view::npos;
    if (!in_names) ++counts[static_cast<uint8_t>(c)];
  }
  return counts;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  auto format = std::make_shared<AnswerFormat>();
  format->tools = &ToolFormats()[data[0] % ToolFormats().size()];
  const size_t reasoning = data[1] % (ReasoningFormats().size() + 1);
  if (reasoning > 0) format->reasoning = &ReasoningFormats()[reasoning - 1];
  format->in_reasoning = data[1] >= 128;
  format->marks_are_told = (data[0] & 64) != 0;
  if (data[0] >= 128) format->call_begins = {"<tool_call>\n{\"name\": \"f\"", "{\"name\": \"f\""};
  static const jinja::Value* const kTools =
      new jinja::Value(*ParseJson(R"([{"type": "function", "function": {"name": "f",
          "parameters": {"properties": {"a": {"type": "string"}, "b": {"type": "number"}}}}}])"));
  format->types = ToolTypes(*kTools);
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);

  const AnswerPart whole = Read(format, text, 0);
  if (whole.reasoning.size() + whole.content.size() > text.size()) std::abort();
  for (const ToolCall& call : whole.calls) {
    if (call.name.empty()) std::abort();
    // Arguments of a known tool are passed on as written, all others are checked.
    if (!format->types.Has(call.name) && !ParseJson(call.arguments).ok()) std::abort();
    if (Trim(call.arguments).front() != '{') std::abort();
  }
  if (format->harmony()) {
    std::string all = whole.reasoning + whole.content;
    for (const ToolCall& call : whole.calls) all += call.name + call.arguments;
    if (CountKept(all) != CountKept(text)) std::abort();
  }
  const uint32_t seed = data[0] * 256u + data[1];
  for (const size_t longest : {size_t{1}, size_t{3}, size_t{8}, size_t{40}}) {
    const AnswerPart cut = Read(format, text, longest, seed);
    bool same = cut.reasoning == whole.reasoning && cut.content == whole.content &&
                cut.calls.size() == whole.calls.size();
    for (size_t i = 0; same && i < whole.calls.size(); ++i) {
      same = cut.calls[i].name == whole.calls[i].name && cut.calls[i].id == whole.calls[i].id &&
             cut.calls[i].arguments == whole.calls[i].arguments;
    }
    if (!same) std::abort();
  }
  return 0;
}
