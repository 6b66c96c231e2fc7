#include "local/calls_constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "chat/json.h"
#include "chat/tool_calls.h"
#include "grammar/grammar.h"

namespace tokamak {
namespace {

using Kind = StructuredOutput::Kind;
using Tools = std::vector<std::pair<std::string, std::string>>;

StructuredOutput::Reasoning Reasoning() { return {.open = "<think>", .close = "</think>"}; }

// All bytes, and tokens that end within the beginnings of calls or go beyond them.
std::shared_ptr<const ConstraintTokens> Tokens() {
  auto tokens = std::make_shared<ConstraintTokens>();
  for (int byte = 0; byte < 256; ++byte) tokens->bytes.emplace_back(1, static_cast<char>(byte));
  for (const char* text : {"<tool_call>",
                           "<tool",
                           "<TOOLCALL>[",
                           "<tool_calls>",
                           "{\"name\": \"f\"",
                           "{\"name\": \"",
                           "\": {\"x\"",
                           "\": {}",
                           "\": 7",
                           " {\"x",
                           " 7",
                           " {}}",
                           "\n{\"",
                           "\n<tool",
                           "\n\n",
                           "f\", ",
                           "<think>",
                           "</think>",
                           "\"f\", \"arguments\": {\"x",
                           "\", \"arguments\": 7",
                           "{}"}) {
    tokens->bytes.emplace_back(text);
  }
  tokens->newlines = {'\n', static_cast<TokenId>(256 + 14)};
  tokens->vocabulary = Vocabulary::Make(tokens->bytes);
  return tokens;
}

class CallsConstraintTest : public ::testing::Test {
 protected:
  // Calls `run` with each form of calls that can be held, but for Harmony, whose calls are
  // messages.
  template <typename Run>
  void ForEachFormat(const Tools& tools, bool parallel, StructuredOutput output, const Run& run) {
    int formats = 0;
    for (const ToolFormat& format : ToolFormats()) {
      if (format.harmony || !OrCalls(format, tools, parallel, output).ok()) continue;
      SCOPED_TRACE(format.name);
      ++formats;
      run(format, output);
    }
    EXPECT_GE(formats, 4);
  }
  std::unique_ptr<TokenConstraint> Make(const StructuredOutput& output) {
    ConstraintMaker maker(tokens_);
    EXPECT_TRUE(maker.Prepare(output).ok()) << maker.Prepare(output).ToString();
    EXPECT_TRUE(maker.prepared(output));
    return std::move(maker.Make(output, 1)->front());
  }
  std::vector<TokenId> Allowed(TokenConstraint& constraint) const {
    std::vector<uint32_t> mask(tokens_->bytes.size() / 32 + 1);
    const Status status = constraint.Allow(mask);
    EXPECT_TRUE(status.ok()) << status.ToString();
    std::vector<TokenId> allowed;
    for (size_t id = 0; id < tokens_->bytes.size(); ++id) {
      if ((mask[id / 32] >> id % 32 & 1) != 0) allowed.push_back(static_cast<TokenId>(id));
    }
    return allowed;
  }
  std::string TextOf(TokenId token) const { return tokens_->bytes[static_cast<size_t>(token)]; }
  // Whether an answer may be this text, spelled byte by byte.
  bool Fits(const StructuredOutput& output, std::string_view text) {
    const auto constraint = Make(output);
    for (const char c : text) {
      const auto token = static_cast<TokenId>(static_cast<uint8_t>(c));
      const std::vector<TokenId> allowed = Allowed(*constraint);
      const bool may = std::find(allowed.begin(), allowed.end(), token) != allowed.end();
      EXPECT_EQ(constraint->Accept(token), may) << text;
      if (!may) return false;
    }
    return constraint->complete();
  }
  static AnswerPart Read(const ToolFormat& tools, const StructuredOutput& output,
                         std::string_view text) {
    auto format = std::make_shared<AnswerFormat>();
    format->tools = &tools;
    if (output.reasoning) format->reasoning = *ChooseReasoningFormat("think", "");
    format->types =
        ToolTypes(*ParseJson(R"([{"function": {"name": "f"}}, {"function": {"name": "go"}}])"));
    for (const auto& call : output.calls) format->call_begins.push_back(call.begin);
    AnswerParser parser(format);
    AnswerPart part = parser.Append(text);
    const AnswerPart rest = parser.Finish();
    part.content += rest.content;
    part.reasoning += rest.reasoning;
    for (const ToolCall& call : rest.calls) {
      if (call.name.empty()) {
        part.calls.back().arguments += call.arguments;
      } else {
        part.calls.push_back(call);
      }
    }
    return part;
  }

  const std::shared_ptr<const ConstraintTokens> tokens_ = Tokens();
  std::mt19937 random_{11};
};

// All answers are known, so each mask has exactly the tokens with which one of them goes on.
TEST_F(CallsConstraintTest, AllowsTheCallsAndTheTextsThatDoNotBeginAsOne) {
  const Tools tools = {{"f", R"({"const": {"x": true}})"}, {"go", R"({"const": {}})"}};
  int calls = 0, texts = 0;
  const auto walk = [&](const ToolFormat&, StructuredOutput output) {
    output.whitespace_pattern = "";
    const std::string f = output.calls[0].begin, go = output.calls[1].begin;
    const std::set<std::string> both = {f + R"({"x":true})" + output.calls[0].end,
                                        go + "{}" + output.calls[1].end};
    std::set<std::string> answers = both;
    for (const std::string& text :
         {f.substr(0, 5), f.substr(0, f.size() - 1), f.substr(0, f.size() - 1) + "7",
          "\n" + f + "7", "\n\n" + f, std::string("7"), std::string("{}"),
          std::string("{\"name\": \"h\"}")}) {
      output.choices.push_back(text);
      answers.insert(text);
    }
    for (const std::string& text : {f, f + "7", go + "7"}) output.choices.push_back(text);
    for (int round = 0; round < 60; ++round) {
      const auto constraint = Make(output);
      std::string text;
      while (!constraint->finished() && !(constraint->complete() && random_() % 4 == 0)) {
        const std::vector<TokenId> allowed = Allowed(*constraint);
        std::vector<TokenId> expected;
        for (size_t id = 0; id < tokens_->bytes.size(); ++id) {
          const std::string next = text + tokens_->bytes[id];
          const auto at = answers.lower_bound(next);
          if (at != answers.end() && at->starts_with(next)) {
            expected.push_back(static_cast<TokenId>(id));
          }
        }
        ASSERT_EQ(allowed, expected) << "after " << text;
        const TokenId token = allowed[random_() % allowed.size()];
        ASSERT_TRUE(constraint->Accept(token));
        text += TextOf(token);
        ASSERT_EQ(constraint->complete(), answers.contains(text)) << text;
      }
      const auto longer = answers.upper_bound(text);
      ASSERT_EQ(constraint->finished(), longer == answers.end() || !longer->starts_with(text));
      ++(both.contains(text) ? calls : texts);
    }
  };
  ForEachFormat(tools, /*parallel=*/false, {.kind = Kind::kChoice}, walk);
  EXPECT_GT(calls, 20);
  EXPECT_GT(texts, 20);
}

// The answer is a number, or any number of calls; reasoning may come before.
TEST_F(CallsConstraintTest, RandomAnswersAreReadAsWhatTheyMustBe) {
  const char* schema =
      R"({"type": "object", "properties": {"n": {"type": "integer", "minimum": 0,
      "maximum": 99}}, "required": ["n"], "additionalProperties": false})";
  const std::regex arguments(R"(\{"n":[0-9]{1,2}\})"), number("[0-9]{2,4}");
  int calls = 0, many = 0, texts = 0, reasoned = 0;
  const auto draw = [&](const ToolFormat& format, const StructuredOutput& output) {
    for (int round = 0; round < 100; ++round) {
      const auto constraint = Make(output);
      std::string text;
      while (!constraint->finished() && !(constraint->complete() && random_() % 2 == 0)) {
        const std::vector<TokenId> allowed = Allowed(*constraint);
        ASSERT_FALSE(allowed.empty()) << text;
        // Reasoning allows everything, and ends soon.
        const bool free = allowed.size() > 200;
        const TokenId token =
            free ? (random_() % 3 == 0 ? 256 + 17 : 'x') : allowed[random_() % allowed.size()];
        ASSERT_TRUE(constraint->Accept(token)) << text;
        text += TextOf(token);
      }
      const AnswerPart answer = Read(format, output, text);
      reasoned += answer.reasoning.empty() ? 0 : 1;
      if (answer.calls.empty()) {
        ++texts;
        EXPECT_TRUE(std::regex_match(answer.content, number)) << text;
        continue;
      }
      ++calls;
      many += answer.calls.size() > 1 ? 1 : 0;
      EXPECT_EQ(answer.content, "") << text;
      for (const ToolCall& call : answer.calls) {
        EXPECT_TRUE(call.name == "f" || call.name == "go") << text;
        EXPECT_TRUE(std::regex_match(call.arguments, arguments)) << text;
      }
    }
  };
  StructuredOutput output{.kind = Kind::kJsonSchema,
                          .text = R"({"type": "integer", "minimum": 10, "maximum": 9999})",
                          .whitespace_pattern = ""};
  for (const bool reasons : {false, true}) {
    if (reasons) output.reasoning = Reasoning();
    ForEachFormat({{"f", schema}, {"go", schema}}, /*parallel=*/true, output, draw);
  }
  for (const int count : {calls, many, texts, reasoned}) EXPECT_GT(count, 20);
}

// A text with this form could be a call that breaks its schema.
TEST_F(CallsConstraintTest, NoTextIsReadAsACall) {
  const auto check = [&](const ToolFormat& format, StructuredOutput output) {
    const std::string begin = output.calls[0].begin;
    const std::string good = begin + R"({"x": true})" + output.calls[0].end;
    const std::string bad = begin + R"({"y": 1})" + output.calls[0].end;
    for (const auto& [text, fits, is_call] :
         std::vector<std::tuple<std::string, bool, bool>>{{good, true, true},
                                                          {bad, false, true},
                                                          {"A " + bad, true, false},
                                                          {"\n" + bad, true, false},
                                                          {begin.substr(0, 7) + "x", true, false},
                                                          {begin + "7", false, false}}) {
      EXPECT_EQ(Fits(output, text), fits) << text;
      EXPECT_EQ(!Read(format, output, text).calls.empty(), is_call) << text;
    }
    output.reasoning = Reasoning();
    for (const char* gap : {"", "\n", "\n\n"}) {
      for (const bool reasons : {true, false}) {
        const std::string before = reasons ? "<think>" + bad + "</think>" + gap : "";
        EXPECT_TRUE(Fits(output, before + good));
        EXPECT_EQ(Read(format, output, before + good).calls.size(), 1u);
        EXPECT_FALSE(Fits(output, before + bad));
        EXPECT_TRUE(Fits(output, before + "7 " + bad));
        EXPECT_TRUE(Read(format, output, before + "7 " + bad).calls.empty());
      }
    }
    const std::string far = "<think>a</think>\n\n\n" + bad;
    EXPECT_TRUE(Read(format, output, far).calls.empty());
    const std::string spaced = " <think>a</think>" + bad;  // no reasoning
    EXPECT_TRUE(Fits(output, spaced));
    EXPECT_EQ(Read(format, output, spaced).content, spaced);
  };
  ForEachFormat({{"f", R"({"const": {"x": true}})"}}, /*parallel=*/true,
                {.kind = Kind::kRegex, .text = "[\\s\\S]*"}, check);
}

TEST_F(CallsConstraintTest, CallsMustHaveABeginning) {
  ConstraintMaker maker(tokens_);
  const StructuredOutput output{.kind = Kind::kJsonObject,
                                .calls = {{.begin = "<", .schema = "{}", .end = ""},
                                          {.begin = "", .schema = "{}", .end = ""}}};
  EXPECT_EQ(maker.Prepare(output).message(), "structured_output.calls[1].begin: must not be empty");
}

}  // namespace
}  // namespace tokamak
