// Calls as the models' own templates write them in past turns fit the form that answers are held
// to.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/testing/refs.h"
#include "chat/chat_template.h"
#include "chat/json.h"
#include "chat/prepare_messages.h"
#include "chat/testing/read_answer.h"
#include "chat/tool_calls.h"
#include "local/structured_output.h"

namespace tokamak {
namespace {

constexpr char kSchema[] = R"({"type": "object", "properties": {"s": {"type": "string"},
    "n": {"type": "integer"}}, "required": ["s", "n"], "additionalProperties": false})";

// Returns the answer with calls of f and, unless the template refuses that, of g. Empty if it shows
// no calls.
std::string RenderCalls(const ChatTemplate& chat, bool kimi, int calls) {
  const std::string ids[] = {kimi ? "functions.f:0" : "abcdefgh0",
                             kimi ? "functions.g:1" : "abcdefgh1"};
  std::string messages = R"([{"role": "user", "content": "Q"}, {"role": "assistant",
      "content": null, "tool_calls": [{"id": ")" +
                         ids[0] + R"(", "type": "function", "function": {"name": "f",
      "arguments": "{\"s\": \"v 1\", \"n\": 5}"}})";
  if (calls > 1) {
    messages += R"(, {"id": ")" + ids[1] +
                R"(", "type": "function", "function": {"name": "g", "arguments": "{}"}})";
  }
  ChatInput input;
  input.messages = PrepareMessages(*ParseJson(messages + "]}]"), ProbeTemplate(chat));
  input.tools = *ParseJson(R"([{"type": "function", "function": {"name": "f", "description": "F.",
      "parameters": )" + std::string(kSchema) +
                           R"(}}, {"type": "function", "function": {"name": "g",
      "description": "G.", "parameters": {"type": "object", "properties": {}}}}])");
  input.add_generation_prompt = false;
  const Result<std::string> text = chat.Render(input);
  if (!text.ok() || text->find("v 1") == std::string::npos) return "";
  return *text;
}

// The longest beginning of `text` that is a whole answer of this form.
std::string_view LongestAnswer(const StructuredOutput& output, std::string_view text) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), output.call_marks.begin(), output.call_marks.end());
  ConstraintMaker maker(MakeConstraintTokens(tokens, [](int32_t id) { return id >= 256; }));
  auto made = maker.Make(output, 1);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  size_t at = 0, complete = 0;
  while (at < text.size()) {
    auto id = static_cast<TokenId>(static_cast<uint8_t>(text[at]));
    for (size_t mark = 256; mark < tokens.size(); ++mark) {
      if (text.substr(at).starts_with(tokens[mark])) id = static_cast<TokenId>(mark);
    }
    if (!made->front()->Accept(id)) break;
    at += tokens[static_cast<size_t>(id)].size();
    if (made->front()->complete()) complete = at;
  }
  return text.substr(0, complete);
}

TEST(HeldCalls, TemplatesWriteThemInTheSameForm) {
  const auto folder = testing::FindRef("llama.cpp/models/templates");
  SKIP_WITHOUT(folder);
  std::map<std::string, int> written;
  for (const auto& entry : std::filesystem::directory_iterator(*folder)) {
    if (entry.path().extension() != ".jinja") continue;
    SCOPED_TRACE(entry.path());
    const std::string source = *ReadWholeFile(entry.path(), 1 << 22);
    const ToolFormat* format = DetectToolFormat(source);
    if (format == nullptr || format->harmony) continue;
    const auto output = ForceCalls(
        *format, std::vector<std::pair<std::string, std::string>>{{"f", kSchema}, {"g", "{}"}},
        /*parallel=*/true);
    ASSERT_TRUE(output.ok());
    const Result<ChatTemplate> chat = ChatTemplate::Parse(source, "<s>", "</s>");
    const bool many = output->call_separator.has_value();
    const std::string text = RenderCalls(*chat, format->name == "kimi_k2", many ? 2 : 1);
    if (text.empty()) continue;
    const size_t at = text.rfind(output->CallBegins().front());
    ASSERT_NE(at, std::string::npos) << text;
    const std::string_view answer = LongestAnswer(*output, std::string_view(text).substr(at));
    auto answer_format = std::make_shared<AnswerFormat>();
    answer_format->tools = format;
    answer_format->types =
        ToolTypes(*ParseJson(R"([{"function": {"name": "f", "parameters": )" +
                             std::string(kSchema) + R"(}}, {"function": {"name": "g"}}])"));
    const std::string calls = R"(|f{"s": "v 1", "n": 5})" + std::string(many ? "|g{}" : "");
    EXPECT_EQ(ReadAnswer(answer_format, answer, 0), calls) << text.substr(at);
    ++written[std::string(format->name)];
  }
  for (const auto& [name, count] : written) std::printf("%s: %d templates\n", name.c_str(), count);
  EXPECT_GE(written.size(), 13u);
}

}  // namespace
}  // namespace tokamak
