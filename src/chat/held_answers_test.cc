// Answers that are calls or a text of a given form: the parser tells them apart as the form does.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/json.h"
#include "chat/testing/read_answer.h"
#include "chat/tool_calls.h"

namespace tokamak {
namespace {

using Tools = std::vector<std::pair<std::string, std::string>>;

constexpr char kTools[] = R"([{"function": {"name": "f"}}, {"function": {"name": "g"}}])";

std::shared_ptr<AnswerFormat> Format(const ToolFormat& tools, const StructuredOutput& output,
                                     std::string_view reasoning) {
  auto format = std::make_shared<AnswerFormat>();
  format->tools = &tools;
  format->reasoning = *ChooseReasoningFormat(reasoning, "");
  format->types = ToolTypes(*ParseJson(kTools));
  for (const StructuredOutput::Tag& call : output.calls) format->call_begins.push_back(call.begin);
  return format;
}

TEST(HeldAnswers, AreCallsExactlyIfTheyBeginAsOne) {
  int formats = 0;
  for (const ToolFormat& tools : ToolFormats()) {
    StructuredOutput output;
    if (!OrCalls(tools, Tools{{"f", "{}"}, {"g", "{}"}}, /*parallel=*/true, output).ok()) continue;
    if (tools.harmony) continue;  // its headers tell calls from content
    ++formats;
    SCOPED_TRACE(tools.name);
    const std::string f = output.calls[0].begin + R"({"n": 1})" + output.calls[0].end;
    const std::string g = output.calls[1].begin + "{}" + output.calls[1].end;
    for (const char* reasoning : {"none", "think"}) {
      const auto format = Format(tools, output, reasoning);
      ExpectRead(format, f, R"(|f{"n": 1})");
      if (!output.call_separator.empty()) {
        ExpectRead(format, g + output.call_separator + f, R"(|g{}|f{"n": 1})");
      }
      const std::string begin = output.calls[0].begin;
      const std::string half = begin.substr(0, begin.size() / 2);
      const std::string other = output.calls[1].begin.substr(0, output.calls[1].begin.size() - 1);
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
  EXPECT_GE(formats, 4);
}

// Without the form's beginnings, any of these would be a call.
TEST(HeldAnswers, OtherAnswersMayHoldCallsAnywhere) {
  StructuredOutput output;
  const ToolFormat& hermes = **ChooseToolFormat("hermes", "");
  ASSERT_TRUE(OrCalls(hermes, Tools{{"f", "{}"}}, true, output).ok());
  auto format = Format(hermes, output, "none");
  const std::string call = output.calls[0].begin + "{}" + output.calls[0].end;
  ExpectRead(format, "A " + call, "A " + call);
  format->call_begins.clear();
  ExpectRead(format, "A " + call, "A|f{}");
}

}  // namespace
}  // namespace tokamak
