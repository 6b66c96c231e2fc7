#include "chat/tool_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>

#include "base/file.h"
#include "base/testing/refs.h"
#include "chat/harmony.h"
#include "chat/json.h"
#include "chat/prepare_messages.h"

namespace tokamak {
namespace {

using jinja::Value;

constexpr char kTools[] = R"([{"type": "function", "function": {"name": "f", "description": "F.",
  "parameters": {"type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "integer"},
   "o": {"type": ["null", "object"]}}}}}, {"type": "function", "function": {"name": "g",
   "description": "G."}}])";

std::shared_ptr<AnswerFormat> Format(std::string_view tools, std::string_view reasoning = "none") {
  auto format = std::make_shared<AnswerFormat>();
  format->tools = *ChooseToolFormat(tools, "");
  format->reasoning = *ChooseReasoningFormat(reasoning, "");
  format->types = ToolTypes(*ParseJson(kTools));
  return format;
}

// Reads the text in pieces that end at `cuts`; returns "(reasoning)content|name#id{arguments}|...".
std::string Read(const std::shared_ptr<const AnswerFormat>& format, const std::string& text,
                 const std::vector<size_t>& cuts) {
  AnswerParser parser(format);
  std::string reasoning, content, calls;
  const auto take = [&](const AnswerPart& part) {
    reasoning += part.reasoning;
    content += part.content;
    for (const ToolCall& call : part.calls) {
      if (!call.name.empty()) calls += "|" + call.name + (call.id.empty() ? "" : "#" + call.id);
      calls += call.arguments;
    }
  };
  size_t begin = 0;
  for (const size_t cut : cuts) {
    take(parser.Append(std::string_view(text).substr(begin, cut - begin)));
    begin = cut;
  }
  take(parser.Append(std::string_view(text).substr(begin)));
  take(parser.Finish());
  return (reasoning.empty() ? "" : "(" + reasoning + ")") + content + calls;
}

// Reads the text whole, cut at every place, at every two places (texts up to 120 bytes), and
// everywhere.
void ExpectRead(const std::shared_ptr<const AnswerFormat>& format, const std::string& text,
                const std::string& expected) {
  SCOPED_TRACE(format->tools == nullptr ? "no tools" : std::string(format->tools->name));
  ASSERT_EQ(Read(format, text, {}), expected) << text;
  std::vector<size_t> everywhere;
  for (size_t a = 0; a <= text.size(); ++a) {
    everywhere.push_back(a);
    ASSERT_EQ(Read(format, text, {a}), expected) << text << "\ncut at " << a;
    for (size_t b = a; text.size() <= 120 && b <= text.size(); ++b) {
      ASSERT_EQ(Read(format, text, {a, b}), expected) << text << "\ncut at " << a << ", " << b;
    }
  }
  ASSERT_EQ(Read(format, text, everywhere), expected) << text << "\ncut everywhere";
}

struct Case {
  const char* format;
  const char* text;
  const char* expected;
};

TEST(ToolCalls, ReadsEveryFormat) {
  const Case cases[] = {
      {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>",
       "|f{\"n\": 1}"},
      {"hermes",
       "I look.\n<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"</tool_call>\\\"}\"}}"
       "</tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call>\n",
       "I look.|f{\"s\":\"</tool_call>\\\"}\"}|g{}"},
      {"hermes",
       "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"n\\\": 2}\"}</tool_call> Done.",
       "Done.|f{\"n\": 2}"},
      {"hermes", "<tool_call>{\"name\": \"f\", \"parameters\": {\"b\": 1, \"a\": 2.0}}",
       "|f{\"b\": 1, \"a\": 2.0}"},
      {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_c", "|f{}"},
      {"qwen3_coder",
       "<tool_call>\n<function=f>\n<parameter=s>\n5\n</parameter>\n<parameter=n>\n5\n</parameter>\n"
       "<parameter=o>\n{\"a\": [True]}\n</parameter>\n</function>\n</tool_call>",
       "|f{\"s\": \"5\", \"n\": 5, \"o\": \"{\\\"a\\\": [True]}\"}"},
      {"glm45",
       "\n<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a "
       "\"b\"\n</arg_value>\n<arg_key>n</arg_key>"
       "\n<arg_value>7</arg_value>\n</tool_call>\n<tool_call>g\n</tool_call>",
       "|f{\"s\": \"a \\\"b\\\"\\n\", \"n\": 7}|g{}"},
      {"llama3_json", "{\"name\": \"f\", \"parameters\": {\"n\": 1}}", "|f{\"n\": 1}"},
      {"llama3_json", "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"n\": 1}}",
       "|f{\"n\": 1}"},
      {"llama3_json",
       "\n{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", "
       "\"parameters\": {}}",
       "|f{}|g{}"},
      {"mistral",
       "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"n\": 1}, \"id\": \"abcdefghi\"},"
       "{\"name\": \"g\", \"arguments\": {}}]",
       "|f{\"n\": 1}|g{}"},
      {"mistral", "Text[TOOL_CALLS]f[ARGS]{\"n\": [1]}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{}",
       "Text|f{\"n\": [1]}|g#123456789{}"},
      {"deepseek_v3",
       "Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
       "{\"n\": "
       "1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}"
       "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "Hm.|f{\"n\": 1}|g{}"},
      {"deepseek_v3",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"n\": 1}<｜tool▁call▁end｜>"
       "<｜tool▁calls▁end｜>",
       "|f{\"n\": 1}"},
      {"kimi_k2",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
       "{\"n\": 1}<|tool_call_end|><|tool_calls_section_end|>",
       "|f#functions.f:0{\"n\": 1}"},
      {"command_r7b",
       "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": "
       "{\"n\": 1}}\n]<|END_ACTION|>",
       "|f{\"n\": 1}"},
      {"command_r7b", "<|START_RESPONSE|>Hello.<|END_RESPONSE|>", "Hello."},
      {"nemotron", "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}]</TOOLCALL>", "|f{}"},
      {"apriel", "<tool_calls>[{\"name\": \"f\", \"arguments\": {}}]</tool_calls>", "|f{}"},
      {"granite", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]", "|f{}"},
      {"functionary_v3.1", "<function=f>{\"n\": 1}</function>", "|f{\"n\": 1}"},
  };
  for (const Case& one : cases) ExpectRead(Format(one.format), one.text, one.expected);
}

TEST(ToolCalls, TextThatIsNotACallStaysContent) {
  const Case cases[] = {
      {"hermes", "Plain text, 1 < 2.\n", "Plain text, 1 < 2.\n"},
      {"hermes", "  two spaces \n\n in <tool it ", "  two spaces \n\n in <tool it "},
      {"hermes", "<tool_call>{\"name\": \"f\", }</tool_call>",
       "<tool_call>{\"name\": \"f\", }</tool_call>"},
      {"hermes", "<tool_call>{\"name\": 5}</tool_call>", "<tool_call>{\"name\": 5}</tool_call>"},
      {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
       "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"},
      {"hermes", "<tool_call>{\"name\": \"f\", \"argum", "<tool_call>{\"name\": \"f\", \"argum"},
      {"hermes", "Write <tool_call> as it is <tool_call>{\"name\": \"f\"}</tool_call>",
       "Write <tool_call> as it is|f{}"},
      {"hermes", "<tool_call>{\"name\": \"f\"} and so on, for a long time, without any end",
       "<tool_call>{\"name\": \"f\"} and so on, for a long time, without any end"},
      {"llama3_json", "{\"name\": \"unknown\", \"parameters\": {}}",
       "{\"name\": \"unknown\", \"parameters\": {}}"},
      {"llama3_json", "See {\"name\": \"f\", \"parameters\": {}}",
       "See {\"name\": \"f\", \"parameters\": {}}"},
      {"llama3_json", "{\"answer\": 5} is JSON", "{\"answer\": 5} is JSON"},
      {"llama3_json", "<|python_tag|>print(1)", "<|python_tag|>print(1)"},
      {"mistral", "[TOOL_CALLS]f{\"n\": 1}", "[TOOL_CALLS]f{\"n\": 1}"},
      {"mistral", "[TOOL_CALLS][]", "[TOOL_CALLS][]"},
      {"mistral", "[TOOL_", "[TOOL_"},
      {"deepseek_v3", "<｜tool▁call▁begin｜>f{}<｜tool▁call▁end｜>",
       "<｜tool▁call▁begin｜>f{}<｜tool▁call▁end｜>"},
      {"kimi_k2", "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>[]<|tool_call_end|>",
       "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>[]<|tool_call_end|>"},
  };
  for (const Case& one : cases) ExpectRead(Format(one.format), one.text, one.expected);
  // Tools that the request does not have: all of the block must be valid.
  for (const auto& [format, text] : std::vector<std::pair<const char*, const char*>>{
           {"hermes", "<tool_call>{\"name\": \"u\", \"arguments\": {\"n\": }}</tool_call>"},
           {"hermes", "<tool_call>{\"name\": \"u\", \"arguments\": {}</tool_call>"},
           {"hermes", "<tool_call><function=u><parameter=a>1</parameter></tool_call> x"},
           {"nemotron", "<TOOLCALL>[{\"name\": \"u\"}, {\"nme\": \"f\"}]</TOOLCALL>"},
           {"nemotron", "<TOOLCALL>[{\"name\": \"u\"},]</TOOLCALL>"},
           {"kimi_k2", "<|tool_call_begin|>u:0<|tool_call_argument_begin|>{]<|tool_call_end|>"}}) {
    ExpectRead(Format(format), text, text);
  }
  const std::string deep = "<tool_call>" + std::string(5000, '[') + std::string(5000, ']');
  EXPECT_EQ(Read(Format("hermes"), deep, {}), deep);
}

TEST(ToolCalls, ReadsCallsOfOtherToolsWhole) {
  const Case cases[] = {
      {"hermes", "<tool_call>{\"name\": \"u\", \"arguments\": {\"n\":  1}}</tool_call>",
       "|u{\"n\":  1}"},
      {"hermes", "<tool_call>{\"arguments\": { }, \"name\": \"f\", \"id\": \"7\"}</tool_call>",
       "|f#7{ }"},
      {"hermes", "<tool_call><function=u><parameter=a>1</parameter></function></tool_call>",
       "|u{\"a\": 1}"},
      {"glm45", "<tool_call>u<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>",
       "|u{\"a\": 1}"},
      {"kimi_k2", "<|tool_call_begin|>u:0<|tool_call_argument_begin|>{\"n\":1}<|tool_call_end|>",
       "|u#u:0{\"n\":1}"},
      {"nemotron",
       "<TOOLCALL>[{\"name\": \"u\"}, {\"name\": \"f\", \"arguments\": {}}, {\"name\": "
       "\"v\"}]</TOOLCALL>",
       "|u{}|f{}|v{}"},
      {"mistral",
       "[TOOL_CALLS][{\"function\": {\"name\": \"f\", \"arguments\": {\"n\": 1}}, \"type\": 1}]",
       "|f{\"n\": 1}"},
  };
  for (const Case& one : cases) ExpectRead(Format(one.format), one.text, one.expected);
}

// A call of a known tool is not taken back. Its arguments are passed on as they are, and text after
// them that does not fit the format is content.
TEST(ToolCalls, CallsThatHaveBegunStay) {
  const std::string f = "<tool_call>{\"name\": \"f\", \"arguments\": ";
  const std::pair<std::string, std::string> cases[] = {
      {f + "{\"n\": }}</tool_call>", "|f{\"n\": }"},
      {f + "{\"n\": 1", "|f{\"n\": 1"},
      {f + "{\"n\": 1}", "|f{\"n\": 1}"},
      {f + "{\"n\": \"</tool_ca", "|f{\"n\": \"</tool_ca"},
      {f + "{\"n\": 1</tool_call> So.", "So.|f{\"n\": 1"},
      {f + "{\"n\": 1 < </tool</tool_call>", "|f{\"n\": 1 < </tool"},
      {f + "{\"n\": 1}\n</tool_call>\nSo.", "So.|f{\"n\": 1}"},
      {f + "{}} and more, that is not the end of a block",
       "and more, that is not the end of a block|f{}"},
      {f + "{}, \"id\": \"x}\", \"more\": [{}]}</tool_call>", "|f{}"},
      {f + "{}" + std::string(600, 'x'), std::string(600, 'x') + "|f{}"},
      {f + "{}}</tool_call> A " + f + "{\"s\": \"\\\"}\"}}</tool_call> B",
       "A  B|f{}|f{\"s\": \"\\\"}\"}"},
      {"<tool_call><function=f><parameter=n>1</parameter> <parameter=s>a", "|f{\"n\": 1"},
      {"<tool_call><function=f><parameter=n>1</parameter></tool_call>", "|f{\"n\": 1}"},
      {"<tool_call><function=f><parameter=n>1</parameter> So <b>", "So <b>|f{\"n\": 1}"},
      {"<tool_call>f<arg_key>n</arg_key><arg_value>1</arg_value>", "|f{\"n\": 1}"},
      {"<tool_call>f\n<arg_key>s</arg_key>\n</tool_call>",
       "<arg_key>s</arg_key>\n</tool_call>|f{}"},
      {"<tool_call>f<arg_key>n</arg_key> So <arg_value>1</arg_value>",
       "<arg_key>n</arg_key> So <arg_value>1</arg_value>|f{}"},
  };
  for (const auto& [text, expected] : cases) ExpectRead(Format("hermes"), text, expected);
  ExpectRead(Format("nemotron"),
             "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}, {\"nme\": 1}]</TOOLCALL>",
             ", {\"nme\": 1}]</TOOLCALL>|f{}");
  ExpectRead(Format("nemotron"), "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}</TOOLCALL> So.",
             "So.|f{}");
  ExpectRead(Format("llama3_json"), "{\"name\": \"f\", \"parameters\": {\"n\": 1}", "|f{\"n\": 1}");
  ExpectRead(Format("deepseek_v3"),
             "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"n\": 1} So.<｜tool▁call▁end｜>",
             "So.|f{\"n\": 1}");
}

// Arguments are returned as soon as they are written; the reader keeps at most an end marker back.
TEST(ToolCalls, ReturnsArgumentsWhileTheyAreWritten) {
  const std::string arguments = "{\"s\": \"a < b\", \"o\": {\"x\": [1, 2, {}]}}";
  for (const auto& [format, before] : std::vector<std::pair<const char*, std::string>>{
           {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": "},
           {"llama3_json", "{\"name\": \"f\", \"parameters\": "},
           {"mistral", "[TOOL_CALLS]f[ARGS]"},
           {"mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": "},
           {"deepseek_v3", "<｜tool▁call▁begin｜>f<｜tool▁sep｜>"},
           {"kimi_k2", "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"},
           {"command_r7b", "<|START_ACTION|>[{\"tool_name\": \"f\", \"parameters\": "},
           {"nemotron", "<TOOLCALL>[{\"name\": \"f\", \"arguments\": "},
           {"apriel", "<tool_calls>[{\"name\": \"f\", \"arguments\": "},
           {"granite", "<|tool_call|>[{\"name\": \"f\", \"arguments\": "},
           {"functionary_v3.1", "<function=f>"},
           {"openai", "<|channel|>commentary to=functions.f<|message|>"}}) {
    SCOPED_TRACE(format);
    AnswerParser parser(Format(format));
    EXPECT_TRUE(parser.Append(before).empty());
    std::string got;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const AnswerPart part = parser.Append(arguments.substr(i, 1));
      EXPECT_EQ(part.content, "");
      for (const ToolCall& call : part.calls) {
        EXPECT_EQ(call.name, i == 0 ? "f" : "") << "at " << i;
        got += call.arguments;
      }
      // A < may begin a mark, and white space may be at the end of a Harmony message.
      EXPECT_GE(got.size() + 2, i + 1) << "at " << i;
    }
    EXPECT_EQ(got, arguments);
  }
  AnswerParser tags(Format("qwen3_coder"));
  EXPECT_TRUE(tags.Append("<tool_call><function=f").empty());
  EXPECT_EQ(tags.Append(">").calls.at(0).arguments, "{");
  EXPECT_EQ(tags.Append("<parameter=n>5</parameter>").calls.at(0).arguments, "\"n\": 5");
  EXPECT_EQ(tags.Append("</function>").calls.at(0).arguments, "}");
}

TEST(ToolCalls, CloseTheBracketsThatTheyOpened) {
  for (const char* rest : {" note </function></tool_call>", " note </tool_call>", "note"}) {
    AnswerParser parser(Format("qwen3_coder"));
    const AnswerPart part =
        parser.Append(std::string("<tool_call><function=f><parameter=n>5</parameter>") + rest);
    std::string arguments;
    for (const ToolCall& call : part.calls) arguments += call.arguments;
    EXPECT_EQ(arguments, "{\"n\": 5}") << rest;
  }
}

TEST(ToolCalls, SeparatesReasoning) {
  const auto both = Format("hermes", "think");
  ExpectRead(both, "<think>\nI think.\n\nSo.\n</think>\n\nHello.\n", "(I think.\n\nSo.)Hello.\n");
  ExpectRead(both, "\n<think></think>\nHi", "Hi");
  ExpectRead(both, "<think>x</think>\n<tool_call>{\"name\": \"f\"}</tool_call>", "(x)|f{}");
  ExpectRead(both, "<think>no end <tool_call> \n", "(no end <tool_call>)");
  ExpectRead(both, "It is <think>not</think> the start", "It is <think>not</think> the start");
  ExpectRead(both, " <thin", " <thin");
  const auto only = Format("none", "mistral");
  ExpectRead(only, "[THINK]a[/THINK]b [TOOL_CALLS]", "(a)b [TOOL_CALLS]");
  auto opened = Format("none", "think");
  opened->in_reasoning = true;
  ExpectRead(opened, "\nI think.</think>\n\nHello", "(I think.)Hello");
  ExpectRead(opened, "<think>again</think>b", "(again)b");
  ExpectRead(opened, "< a </thin", "(< a </thin)");
}

TEST(ToolCalls, NamesAreChecked) {
  EXPECT_EQ(*ChooseToolFormat("none", "<tool_call>"), nullptr);
  EXPECT_EQ((*ChooseToolFormat("auto", "<tool_call>"))->name, "hermes");
  const auto wrong = ChooseToolFormat("pythonic", "");
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.status().message(), ::testing::HasSubstr("choose one of auto, none, kimi_k2"));
  EXPECT_FALSE(ChooseReasoningFormat("x", "").ok());
}

// ---- Harmony ----

std::shared_ptr<AnswerFormat> Harmony() { return Format("openai", "openai_gptoss"); }

const Value& Goldens() {
  static const Value* const kGoldens = new Value(*ParseJson(*ReadWholeFile(
      std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/chat/harmony.json", 1 << 20)));
  return *kGoldens;
}

std::string_view TextOf(const Value& object, std::string_view key) {
  const Value* value = object.dict().Find(key);
  return value == nullptr || value->is_none() ? "" : value->text();
}

// The goldens are what OpenAI's own library reads. If the last mark is a stop token, it is not part
// of the text; the text must read the same without it.
TEST(Harmony, ParsesMessagesAsTheVendorDoes) {
  constexpr std::string_view kFunctions = "functions.";
  int refused = 0;
  for (const Value& answer : Goldens().dict().Find("answers")->items()) {
    const std::string text(TextOf(answer, "text"));
    const Value& messages = *answer.dict().Find("messages");
    if (messages.is_none()) {
      ++refused;
      continue;
    }
    std::string reasoning, content, calls;
    for (const Value& message : messages.items()) {
      const std::string_view to = TextOf(message, "recipient"), said = TextOf(message, "text");
      if (!to.empty()) {
        ASSERT_TRUE(to.starts_with(kFunctions)) << text;
        calls.append("|").append(to.substr(kFunctions.size())).append(said);
        continue;
      }
      std::string& all = TextOf(message, "channel") == "analysis" ? reasoning : content;
      if (said.empty()) continue;
      all.append(all.empty() ? "" : "\n\n").append(said);
    }
    const std::string expected =
        (reasoning.empty() ? "" : "(" + reasoning + ")").append(content).append(calls);
    ExpectRead(Harmony(), text, expected);
    if (text.ends_with("|>")) ExpectRead(Harmony(), text.substr(0, text.rfind("<|")), expected);
  }
  EXPECT_EQ(refused, 2) << "they are in the next test";
}

TEST(Harmony, KeepsAllTextOfMalformedMessages) {
  const std::string call = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>";
  const std::string final = "<|channel|>final<|message|>", start = "<|start|>assistant";
  const std::pair<std::string, std::string> cases[] = {
      {"Plain text, to=be or <|not|>.\n", "Plain text, to=be or <|not|>.\n"},
      {"  ", "  "},
      {"to", "to"},
      // Channels that are missing, empty, unknown or cut off.
      {"<|message|>A<|return|>", "A"},
      {"<|channel|><|message|>A<|end|>", "<|channel|><|message|>A"},
      {"<|channel|>thoughts<|message|>A<|end|>" + start + final + "B",
       "<|channel|>thoughts<|message|>A<|end|>\n\nB"},
      {"<|channel|>final A", "<|channel|>final A"},
      {final, ""},
      {"<|channel|>fin", ""},
      {"<|channel|>analysis<|message|>A<|end|><|start|>assist", "(A)"},
      {"<|channel|>analysis<|message|>A<|end|>" + start + " to=functions.f",
       "(A)<|start|>assistant to=functions.f"},
      {"<|channel|>analysis<|message|>A<|e", "(A<|e)"},
      // Messages from another role.
      {final + "A<|end|><|start|>user<|message|>B<|end|>", "A<|start|>user<|message|>B<|end|>"},
      {"<|start|>assistant" + final + "A", "A"},
      // Messages without an end and headers without a start.
      {"<|channel|>analysis<|message|>A" + final + "B", "(A)B"},
      {"<|channel|>analysis<|message|>A" + start + final + "B", "(A)B"},
      {"<|channel|>analysis<|message|>A<|end|>\n" + final + "B", "(A)B"},
      {final + "A<|end|>" + start + final + "B<|return|>", "A\n\nB"},
      {final + "A<|return|><|end|>" + start + final + "B", "A\n\nB"},
      // Marks as text.
      {final + "The mark <|end|> ends <|start|> and <|channel|>final.",
       "The mark <|end|> ends <|start|> and <|channel|>final."},
      {final + "A<|end|>B", "A<|end|>B"},
      {final + "A<|message|>B<|constrain|>", "A<|message|>B<|constrain|>"},
      {final + " < <| <|end <<|end|>", " < <| <|end <"},
      // Invalid calls.
      {call + "[1]<|call|>", call + "[1]<|call|>"},
      {"<|channel|>commentary to=functions.f g<|message|>{}<|call|>",
       "<|channel|>commentary to=functions.f g<|message|>{}"},
      {"<|channel|>analysis to=python code<|message|>x = 1<|call|>",
       "<|channel|>analysis to=python code<|message|>x = 1<|call|>"},
      {" to=functions.f<|channel|>commentary to=functions.g<|message|>{}<|call|>",
       " to=functions.f|g{}"},
      {"<|channel|>reply to=functions.f<|message|>{}<|call|>",
       "<|channel|>reply to=functions.f<|message|>{}<|call|>"},
      // Valid calls.
      {call + "<|call|>", "|f{}"},
      // Once a call has begun, its arguments are what follows, valid or not, up to the bracket that
      // closes them.
      {call + "{\"a\": <|call|>", "|f{\"a\":"},
      {call + " {\"a\": 1 ", "|f{\"a\": 1"},
      {call + "{} x <|call|>", " x |f{}"},
      {call + R"({"a": ["}\"]", {}]} } <|call|>)", R"( } |f{"a": ["}\"]", {}]})"},
      {call + "{}x<|call|>" + start + call + R"({"b": "{"})", R"(x|f{}|f{"b": "{"})"},
      {"<|channel|>commentary to=functions.unknown<|message|>{\"a\":1} <|call|>",
       "|unknown{\"a\":1}"},
      {call + "\n{\"a\": \"<|end|>\"}\n<|end|>", "|f{\"a\": \"<|end|>\"}"},
      {"<|channel|>commentary to=g<|message|>{}<|call|>", "|g{}"},
      {" to=functions.f<|channel|>commentary to=functions.f json<|message|>{}<|call|>", "|f{}"},
      {final + "A<|end|>" + start + call + "{}<|call|>" + start + final + "B", "A\n\nB|f{}"},
      {"<|channel|>final <|constrain|>json<|message|>{}<|return|>", "{}"},
  };
  for (const auto& [text, expected] : cases) ExpectRead(Harmony(), text, expected);
  const std::string deep = call + std::string(5000, '[') + std::string(5000, ']') + "<|call|>";
  EXPECT_EQ(Read(Harmony(), deep, {}), deep);
}

TEST(Harmony, WithoutItsParserMessagesStayContent) {
  const std::string think = "<|channel|>analysis<|message|>A<|end|>";
  const std::string call =
      "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}";
  ExpectRead(Format("none", "openai_gptoss"), think + call, "(A)" + call);
  ExpectRead(Format("openai", "none"), think + call, think + "|f{}");
  auto opened = Harmony();
  opened->in_reasoning = true;
  ExpectRead(opened, "A<|end|><|start|>assistant<|channel|>final<|message|>B", "(A)B");
}

// A header has a bounded length, so text that looks like one is held back only for a while, and
// reading takes linear time.
TEST(Harmony, HoldsBackLittleText) {
  for (const std::string& piece :
       {std::string("<|end|>"), std::string("<|start|>"), std::string("<|channel|>"),
        std::string("x"), std::string(" ")}) {
    AnswerParser parser(Harmony());
    parser.Append("<|channel|>final<|message|>A<|channel|>");
    size_t written = 0, shown = 0;
    for (int i = 0; i < 20000; ++i) {
      shown += parser.Append(piece).content.size();
      written += piece.size();
      ASSERT_LE(written, shown + 1024) << piece;
    }
  }
}

TEST(Harmony, RendersConversationsAsTheVendorDoes) {
  const auto path = testing::FindRef("llama.cpp/models/templates/openai-gpt-oss-120b.jinja");
  SKIP_WITHOUT(path);
  const std::string source = *ReadWholeFile(*path, 1 << 22);
  EXPECT_EQ(DetectToolFormat(source)->name, "openai");
  EXPECT_EQ(DetectReasoningFormat(source)->name, "openai_gptoss");
  const Result<ChatTemplate> chat = ChatTemplate::Parse(source, "", "");
  const TemplateTraits traits = ProbeTemplate(*chat);
  const auto render = [&](const Value& messages) {
    ChatInput input;
    input.messages = PrepareMessages(messages, traits);
    const Result<std::string> text = chat->Render(input);
    return text.ok() ? text->substr(text->find("<|start|>user")) : text.status().ToString();
  };
  for (const Value& one : Goldens().dict().Find("conversations")->items()) {
    EXPECT_EQ(render(*one.dict().Find("messages")), TextOf(one, "text"));
  }
  // The template takes one text beside a call and shows it as reasoning; answers may have two.
  EXPECT_EQ(render(*ParseJson(R"([{"role": "user", "content": "Q"}, {"role": "assistant",
              "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [{"id": "1",
              "type": "function", "function": {"name": "f", "arguments": "{}"}}]}])")),
            "<|start|>user<|message|>Q<|end|><|start|>assistant<|channel|>analysis<|message|>Hm."
            "\n\nI look.<|end|><|start|>assistant to=functions.f<|channel|>commentary json"
            "<|message|>{}<|call|><|start|>assistant");
}

// Each model's template renders a call of an earlier turn; the format detected from the template's
// source reads it back.
TEST(ToolCalls, ParsesTheCallsThatTemplatesRender) {
  const auto folder = testing::FindRef("llama.cpp/models/templates");
  SKIP_WITHOUT(folder);
  const Value tools = *ParseJson(kTools);
  const std::string question = R"([{"role": "user", "content": "Q"})";
  const std::string call = R"(, {"role": "assistant", "content": null, "tool_calls": [{
      "id": "abcdefghi", "type": "function", "function": {"name": "f",
      "arguments": "{\"s\": \"v 1\", \"n\": 5}"}}]})";
  std::map<std::string, int> read;
  for (const auto& entry : std::filesystem::directory_iterator(*folder)) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string source = *ReadWholeFile(entry.path(), 1 << 22);
    const ToolFormat* detected = DetectToolFormat(source);
    if (detected == nullptr) continue;
    const Result<ChatTemplate> chat = ChatTemplate::Parse(source, "<s>", "</s>");
    const TemplateTraits traits = ProbeTemplate(*chat);
    const auto render = [&](const std::string& messages, bool begin_answer) {
      ChatInput input;
      input.messages = PrepareMessages(*ParseJson(messages), traits);
      input.tools = tools;
      input.add_generation_prompt = begin_answer;
      return chat->Render(input);
    };
    // An answer begins after the prompt. A few templates write that beginning differently in the
    // prompt than in a finished answer.
    Result<std::string> before = render(question + "]", true);
    const Result<std::string> after = render(question + call + "]", false);
    if (!before.ok() || !after.ok() || after->find("v 1") == std::string::npos) continue;
    if (!after->starts_with(*before)) before = render(question + "]", false);
    if (!after->starts_with(*before)) continue;
    auto format = Format(detected->name);
    const std::string got = Read(format, after->substr(before->size()), {});
    const size_t at = got.find("|f");
    const bool right = at != std::string::npos && got.find("\"v 1\"", at) != std::string::npos &&
                       got.find("5}", at) != std::string::npos;
    EXPECT_TRUE(right) << entry.path() << " (" << detected->name << ")\n"
                       << after->substr(before->size()) << "\n"
                       << got;
    ++read[std::string(detected->name)];
  }
  for (const auto& [name, count] : read) std::printf("%s: %d templates\n", name.c_str(), count);
  EXPECT_GE(read.size(), 10u);
  EXPECT_EQ(read["openai"], 1);
}

TEST(ToolCalls, ReasoningIsFreeUnlessThePromptHasEndedIt) {
  const ReasoningFormat* think = *ChooseReasoningFormat("think", "");
  EXPECT_FALSE(FreeReasoning("a", nullptr));
  EXPECT_FALSE(FreeReasoning("a<think>\n\n</think>\n\n", think));
  EXPECT_FALSE(FreeReasoning("a", think)->begun);
  EXPECT_TRUE(FreeReasoning("a<think>\n", think)->begun);
  EXPECT_EQ(FreeReasoning("a", think)->close, "</think>");
}

}  // namespace
}  // namespace tokamak
