// Answers whose calls are held to a form: the parser reads them, and tells them from text, as the
// form does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/harmony.h"
#include "chat/json.h"
#include "chat/testing/read_answer.h"
#include "chat/tool_calls.h"

namespace tokamak {
namespace {

using Tools = std::vector<std::pair<std::string, std::string>>;

constexpr char kTools[] = R"([{"function": {"name": "f"}}, {"function": {"name": "g"}}])";

// `output`: an answer that may be a text, too.
std::shared_ptr<AnswerFormat> Format(const ToolFormat& tools, const StructuredOutput& output = {},
                                     std::string_view reasoning = "none") {
  auto format = std::make_shared<AnswerFormat>();
  format->tools = &tools;
  format->reasoning = *ChooseReasoningFormat(reasoning, "");
  format->types = ToolTypes(*ParseJson(kTools));
  format->call_begins = output.CallBegins();
  return format;
}

TEST(HeldAnswers, AreCallsExactlyIfTheyBeginAsOne) {
  for (const ToolFormat& tools : ToolFormats()) {
    StructuredOutput output;
    ASSERT_TRUE(OrCalls(tools, Tools{{"f", "{}"}, {"g", "{}"}}, /*parallel=*/true, output).ok());
    if (tools.harmony) continue;  // its headers tell calls from content
    SCOPED_TRACE(tools.name);
    const std::string f = WriteCalls(output, {{0, R"({"n": 1})"}});
    for (const char* reasoning : {"none", "think"}) {
      const auto format = Format(tools, output, reasoning);
      ExpectRead(format, f, R"(|f{"n": 1})");
      if (output.call_separator) {
        ExpectRead(format, WriteCalls(output, {{1, "{}"}, {0, R"({"n": 1})"}}),
                   R"(|g{}|f{"n": 1})");
      }
      const std::string begin = output.CallBegins().front();
      const std::string half = begin.substr(0, begin.size() / 2);
      std::string other = output.CallBegins().back();
      other.pop_back();
      for (const std::string& text : std::vector<std::string>{
               "7", "{}", half, half + "x", other, " " + f, "\n" + f,
               "{\"a\": \"" + std::string(f.begin(), f.begin() + 11) + "\"}", "7" + f,
               "{ \"name\": \"f\", \"parameters\": {}}", "{\"name\": \"h\", \"parameters\": {}}"}) {
        ExpectRead(format, text, text);
      }
    }
    const auto format = Format(tools, output, "think");
    for (const char* gap : {"", "\n", "\n\n"}) {
      ExpectRead(format, "<think>a</think>" + std::string(gap) + f, R"((a)|f{"n": 1})");
      ExpectRead(format, "<think>" + f + "</think>" + gap + "7", "(" + f + ")7");
    }
    for (const std::string& text : {" <think>a</think>" + f, "\n<think>a</think>\n" + f}) {
      ExpectRead(format, text, text);
    }
    // White space after reasoning is dropped, but this text is no call.
    ExpectRead(format, "<think>a</think>\n\n\n" + f, "(a)" + f);
    ExpectRead(format, "<think>a</think> " + f, "(a)" + f);
  }
}

// Without the form's beginnings, any of these would be a call.
TEST(HeldAnswers, OtherAnswersMayHoldCallsAnywhere) {
  StructuredOutput output;
  const ToolFormat& hermes = **ChooseToolFormat("hermes", "");
  ASSERT_TRUE(OrCalls(hermes, Tools{{"f", "{}"}}, true, output).ok());
  auto format = Format(hermes, output, "none");
  const std::string call = WriteCalls(output, {{0, "{}"}});
  ExpectRead(format, "A " + call, "A " + call);
  format->call_begins.clear();
  ExpectRead(format, "A " + call, "A|f{}");
}

// The parser must read the calls that a request forces the model to write.
TEST(HeldAnswers, ForcedCallsAreReadAsCalls) {
  for (const ToolFormat& tools : ToolFormats()) {
    SCOPED_TRACE(tools.name);
    const Result<StructuredOutput> forced =
        ForceCalls(tools, Tools{{"f", "{}"}, {"g", "{}"}}, /*parallel=*/true);
    ASSERT_TRUE(forced.ok());
    EXPECT_TRUE(forced->must_call);
    const auto format = Format(tools);
    ExpectRead(format, WriteCalls(*forced, {{0, R"({"n": 1})"}}), R"(|f{"n": 1})");
    const std::string g = WriteCalls(*forced, {{1, "{}"}});
    if (tools.harmony) {  // the same after reasoning
      format->reasoning = *ChooseReasoningFormat("openai_gptoss", "");
      const StructuredOutput::Messages messages = HarmonyMessages("", false);
      ExpectRead(format, messages.free[0] + "A" + messages.end + messages.start + g, "(A)|g{}");
    }
    if (!forced->call_separator) continue;
    ExpectRead(format, WriteCalls(*forced, {{1, "{}"}, {0, R"({"n": 1})"}, {1, "{}"}}),
               R"(|g{}|f{"n": 1}|g{})");
    EXPECT_FALSE(ForceCalls(tools, Tools{{"f", "{}"}}, /*parallel=*/false)->call_separator);
  }
  const ToolFormat& hermes = **ChooseToolFormat("hermes", "");
  EXPECT_EQ(ForceCalls(hermes, Tools{{"a\"b", "{}"}}, false).status().code(),
            StatusCode::kInvalidArgument);
}

// Calls that a request allows are the same, after free text.
TEST(HeldAnswers, AllowedCallsBeginWithTheirMarker) {
  const Tools f = {{"f", "{}"}};
  for (const ToolFormat& tools : ToolFormats()) {
    SCOPED_TRACE(tools.name);
    const Result<StructuredOutput> output = AllowCalls(tools, f, /*parallel=*/true);
    if (tools.name == "llama3_json") {
      EXPECT_EQ(output.status().code(), StatusCode::kUnimplemented);
      EXPECT_THAT(output.status().message(), ::testing::HasSubstr("no opening tag"));
      continue;
    }
    ASSERT_TRUE(output.ok());
    if (tools.harmony) continue;  // its calls are messages of their own
    EXPECT_FALSE(output->ends_after_tag);
    EXPECT_TRUE(AllowCalls(tools, f, false)->ends_after_tag);
    const std::string call = WriteCalls(*output, {{0, "{}"}});
    EXPECT_TRUE(std::any_of(output->triggers.begin(), output->triggers.end(),
                            [&](const auto& trigger) { return call.starts_with(trigger); }));
    ExpectRead(Format(tools), "A " + call + "B " + call, "A B|f{}|f{}");
  }
}

}  // namespace
}  // namespace tokamak
