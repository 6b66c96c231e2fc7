#include "local/calls_constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "chat/json.h"
#include "chat/testing/read_answer.h"
#include "chat/tool_calls.h"
#include "grammar/grammar.h"
#include "local/testing/looking_ahead.h"

namespace tokamak {
namespace {

using Kind = StructuredOutput::Kind;
using Tools = std::vector<std::pair<std::string, std::string>>;

constexpr char kOnlyTrue[] = R"({"type": "object", "properties": {"x": {"const": true}},
    "required": ["x"], "additionalProperties": false})";

StructuredOutput::Reasoning Reasoning() { return {.open = "<think>", .close = "</think>"}; }

// All bytes, tokens that end within the beginnings of calls or go beyond them, and special tokens.
std::shared_ptr<const ConstraintTokens> Tokens() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
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
    tokens.emplace_back(text);
  }
  const size_t text_tokens = tokens.size();
  for (const ToolFormat& format : ToolFormats()) {
    for (const std::string_view mark : MarksOf(&format, nullptr)) {
      const bool special =
          mark.starts_with("<|") || mark.starts_with("<｜") || mark.starts_with("[");
      if (special && std::find(tokens.begin(), tokens.end(), mark) == tokens.end()) {
        tokens.emplace_back(mark);
      }
    }
  }
  EXPECT_GT(tokens.size(), text_tokens + 15);
  return MakeConstraintTokens(std::move(tokens),
                              [=](int32_t id) { return static_cast<size_t>(id) >= text_tokens; });
}

class CallsConstraintTest : public ::testing::Test {
 protected:
  // Calls `run` with each form of calls that can be held, but for Harmony, whose calls are
  // messages.
  template <typename Run>
  void ForEachFormat(const Tools& tools, bool parallel, const StructuredOutput& output,
                     const Run& run) {
    for (const ToolFormat& format : ToolFormats()) {
      if (format.harmony) continue;
      SCOPED_TRACE(format.name);
      StructuredOutput with_calls = output;
      ASSERT_TRUE(OrCalls(format, tools, parallel, with_calls).ok());
      run(format, with_calls);
    }
  }
  std::unique_ptr<TokenConstraint> Make(const StructuredOutput& output) {
    ConstraintMaker maker(tokens_);
    EXPECT_TRUE(maker.Prepare(output).ok()) << maker.Prepare(output).ToString();
    EXPECT_TRUE(maker.prepared(output));
    return std::make_unique<testing::LookingAhead>(std::move(maker.Make(output, 1)->front()));
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
  bool IsSpecial(TokenId token) const {
    return std::find(tokens_->special.begin(), tokens_->special.end(), token) !=
           tokens_->special.end();
  }
  // The special token whose name begins `text`, or its first byte.
  TokenId FirstToken(std::string_view text) const {
    for (const TokenId id : tokens_->special) {
      if (text.starts_with(tokens_->bytes[static_cast<size_t>(id)])) return id;
    }
    return static_cast<TokenId>(static_cast<uint8_t>(text.front()));
  }
  // The token as masks see it: a special one has a mark, which no text has.
  std::string CodeOf(TokenId token) const {
    return IsSpecial(token) ? GrammarMark(TextOf(token)) : TextOf(token);
  }
  std::string CodeOfCall(std::string_view text) const {
    std::string code;
    for (size_t at = 0; at < text.size(); at += TextOf(FirstToken(text.substr(at))).size()) {
      code += CodeOf(FirstToken(text.substr(at)));
    }
    return code;
  }
  enum class As { kTokens, kSpelled };
  // Whether an answer may be this text, spelled byte by byte apart from special tokens.
  bool Fits(const StructuredOutput& output, std::string_view text, As as) {
    const auto constraint = Make(output);
    while (!text.empty()) {
      const TokenId token = FirstToken(as == As::kTokens ? text : text.substr(0, 1));
      text.remove_prefix(TextOf(token).size());
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
    if (!output.calls_in_text) format->call_begins = output.CallBegins();
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
  const Tools tools = {{"f", kOnlyTrue},
                       {"go", R"({"type": "object", "additionalProperties": false})"}};
  int calls = 0, texts = 0;
  const auto walk = [&](const ToolFormat&, StructuredOutput output) {
    output.whitespace_pattern = "";
    for (auto& call : output.calls) call.id = call.id.empty() ? "" : "abcdefgh7";
    if (auto& form = output.call_parameters) {
      for (std::string* text : {&form->before_name, &form->after_name, &form->end}) {
        *text = MatchOf(*text);
      }
    }
    const std::string f = output.CallBegins().front(), go = output.CallBegins().back();
    const std::set<std::string> both = {CodeOfCall(WriteCalls(output, {{0, R"({"x":true})"}})),
                                        CodeOfCall(WriteCalls(output, {{1, "{}"}}))};
    std::set<std::string> answers = both;
    for (const std::string& text :
         {f.substr(0, 5), f.substr(0, f.size() - 1), f.substr(0, f.size() - 1) + "7",
          "\n" + f + "7", "\n\n" + f, std::string("7"), std::string("{}"),
          std::string("{\"name\": \"h\"}")}) {
      output.choices.push_back(text);
      answers.insert(text);
    }
    output.choices.insert(output.choices.end(), {f, f + "7"});
    // Without special tokens every beginning of this could become a call.
    if (CodeOfCall(go) == go) output.choices.push_back(go + "7");
    for (int round = 0; round < 60; ++round) {
      const auto constraint = Make(output);
      std::string text;
      while (!constraint->finished() && !(constraint->complete() && random_() % 4 == 0)) {
        const std::vector<TokenId> allowed = Allowed(*constraint);
        std::vector<TokenId> expected;
        for (size_t id = 0; id < tokens_->bytes.size(); ++id) {
          if (id == 0xFF) continue;  // no text has this byte
          const std::string next = text + CodeOf(static_cast<TokenId>(id));
          const auto at = answers.lower_bound(next);
          if (at != answers.end() && at->starts_with(next)) {
            expected.push_back(static_cast<TokenId>(id));
          }
        }
        ASSERT_EQ(allowed, expected) << "after " << text;
        const TokenId token = allowed[random_() % allowed.size()];
        ASSERT_TRUE(constraint->Accept(token));
        text += CodeOf(token);
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
  const std::regex arguments(R"(\{"n": ?[0-9]{1,2}\})"), number("[0-9]{2,4}");
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
  int marked = 0;
  const auto check = [&](const ToolFormat& format, StructuredOutput output) {
    const std::string begin = output.CallBegins().front();
    const std::string good = WriteCalls(output, {{0, R"({"x": true})"}});
    const std::string bad = WriteCalls(output, {{0, R"({"y": 1})"}});
    for (const auto& [text, as, fits, is_call] :
         std::vector<std::tuple<std::string, As, bool, bool>>{
             {good, As::kTokens, true, true},
             {bad, As::kTokens, false, true},
             {bad, As::kSpelled, false, true},
             {"A " + bad, As::kSpelled, true, false},
             {"\n" + bad, As::kSpelled, true, false},
             {begin.substr(0, 7) + "x", As::kSpelled, true, false},
             {begin + "7", As::kTokens, false, false},
             {begin + "7", As::kSpelled, false, false}}) {
      EXPECT_EQ(Fits(output, text, as), fits) << text;
      // Half a call is one if its name is all that it needs.
      if (text == begin + "7") continue;
      EXPECT_EQ(!Read(format, output, text).calls.empty(), is_call) << text;
    }
    const bool has_marks = CodeOfCall(good) != good;
    EXPECT_EQ(Fits(output, good, As::kSpelled), !has_marks);
    marked += has_marks ? 1 : 0;
    output.reasoning = Reasoning();
    for (const char* gap : {"", "\n", "\n\n"}) {
      for (const bool reasons : {true, false}) {
        const std::string before = reasons ? "<think>" + bad + "</think>" + gap : "";
        EXPECT_TRUE(Fits(output, before + good, As::kTokens));
        EXPECT_EQ(Read(format, output, before + good).calls.size(), 1u);
        EXPECT_FALSE(Fits(output, before + bad, As::kTokens));
        EXPECT_TRUE(Fits(output, before + "7 " + bad, As::kSpelled));
        EXPECT_TRUE(Read(format, output, before + "7 " + bad).calls.empty());
      }
    }
    const std::string far = "<think>a</think>\n\n\n" + bad;
    EXPECT_TRUE(Read(format, output, far).calls.empty());
    const std::string spaced = " <think>a</think>" + bad;  // no reasoning
    EXPECT_TRUE(Fits(output, spaced, As::kSpelled));
    EXPECT_EQ(Read(format, output, spaced).content, spaced);
  };
  ForEachFormat({{"f", kOnlyTrue}}, /*parallel=*/true, {.kind = Kind::kRegex, .text = "[\\s\\S]*"},
                check);
  EXPECT_GE(marked, 6);
}

// Free text until a call begins: with its special token, if the vocabulary has it as one.
TEST_F(CallsConstraintTest, FreeTextDoesNotSpellACall) {
  int formats = 0;
  for (const ToolFormat& format : ToolFormats()) {
    const Tools tools = {{"f", kOnlyTrue}, {"go", "{}"}};
    const Result<StructuredOutput> output = AllowCalls(format, tools, /*parallel=*/true);
    if (format.harmony || !output.ok()) continue;
    SCOPED_TRACE(format.name);
    ++formats;
    const std::string call = WriteCalls(*output, {{0, R"({"x": true})"}});
    std::string both = call;
    if (output->call_separator) both = WriteCalls(*output, {{0, R"({"x": true})"}, {1, "{}"}});
    const std::string text = "A " + call + "B" + both + " C";
    EXPECT_TRUE(Fits(*output, text, As::kTokens));
    EXPECT_EQ(Fits(*output, text, As::kSpelled), CodeOfCall(call) == call);
    const AnswerPart answer = Read(format, *output, text);
    EXPECT_EQ(std::regex_replace(answer.content, std::regex("\n"), ""), "A B C");
    EXPECT_EQ(answer.calls.size(), both == call ? 2u : 3u);
    EXPECT_TRUE(Fits(*output, "A <", As::kSpelled));
    EXPECT_FALSE(Fits(*output, "A " + WriteCalls(*output, {{0, "{}"}}), As::kTokens));
    EXPECT_FALSE(Fits(*output, "A " + WriteCalls(*output, {{0, "{}"}}), As::kSpelled));
    for (const std::string& trigger : output->triggers) {
      EXPECT_FALSE(Fits(*output, "A " + trigger, As::kSpelled));
    }
    const Result<StructuredOutput> one = AllowCalls(format, tools, /*parallel=*/false);
    EXPECT_TRUE(Fits(*one, "A " + call, As::kTokens));
    EXPECT_FALSE(Fits(*one, "A " + call + "B", As::kTokens));
    EXPECT_FALSE(Fits(*one, both + call, As::kTokens));
  }
  EXPECT_GE(formats, 14);
}

// Texts and JSON may spell anything but the tags that end them.
TEST_F(CallsConstraintTest, ArgumentsInTagsAreReadAsTheSchemaHasThem) {
  const char* schema = R"({"type": "object", "properties": {
      "t": {"type": "string", "maxLength": 30}, "e": {"type": ["string", "null"], "enum": ["a<b", "</c>", null]},
      "p": {"type": "string", "pattern": "^[<>/]+$", "maxLength": 9},
      "l": {"type": "array", "items": {"type": "string", "maxLength": 6}, "maxItems": 2},
      "u": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "integer", "minimum": 0}]}},
      "required": ["t", "p", "u"], "additionalProperties": {"type": "boolean"}})";
  const Tools tools = {{"f", schema}};
  const auto types = [&] {
    return ToolTypes(
        *ParseJson(R"([{"function": {"name": "f", "parameters": )" + std::string(schema) + "}}]"));
  };
  int marks = 0, optional = 0, more = 0;
  for (const char* name : {"qwen3_coder", "glm45"}) {
    SCOPED_TRACE(name);
    const ToolFormat& tool_format = **ChooseToolFormat(name, "");
    const StructuredOutput output = *ForceCalls(tool_format, tools, /*parallel=*/false);
    EXPECT_EQ(output.calls[0].text_arguments, (std::vector<std::string>{"t", "e", "p"}));
    auto format = std::make_shared<AnswerFormat>();
    format->tools = &tool_format;
    format->types = types();
    for (int round = 0; round < 60; ++round) {
      const auto constraint = Make(output);
      std::string text;
      while (!constraint->finished() && text.size() < 600) {
        std::vector<TokenId> allowed = Allowed(*constraint);
        ASSERT_FALSE(allowed.empty()) << text;
        // Mostly ASCII, and often the beginning of a tag.
        std::vector<TokenId> liked;
        for (const TokenId token : allowed) {
          if (std::string_view("</abpx>ruelmt_g\"\n]}").find(TextOf(token)) != std::string::npos) {
            liked.push_back(token);
          }
        }
        const auto& from = liked.empty() || random_() % 9 == 0 ? allowed : liked;
        const TokenId token = from[random_() % from.size()];
        ASSERT_TRUE(constraint->Accept(token)) << text;
        text += TextOf(token);
      }
      if (!constraint->finished()) continue;
      AnswerParser parser(format);
      AnswerPart part = parser.Append(text);
      const AnswerPart rest = parser.Finish();
      EXPECT_EQ(part.content + rest.content, "") << text;
      std::string arguments;
      for (const ToolCall& call : part.calls) arguments += call.arguments;
      const auto json = nlohmann::json::parse(arguments, nullptr, /*allow_exceptions=*/false);
      ASSERT_TRUE(json.is_object()) << text << "\n" << arguments;
      EXPECT_TRUE(json.at("t").is_string()) << text;
      EXPECT_TRUE(std::regex_match(json.at("p").get<std::string>(), std::regex("[<>/]{1,9}")));
      EXPECT_TRUE(json.at("u").is_number_integer() || json.at("u").is_string()) << text;
      marks += json.at("t").get<std::string>().find('<') != std::string::npos;
      for (const auto& [key, value] : json.items()) {
        if (key == "e") {
          EXPECT_TRUE(value == "a<b" || value == "</c>") << text;
          ++optional;
        } else if (key == "l") {
          EXPECT_TRUE(value.is_array() && value.size() <= 2) << text;
        } else if (key != "t" && key != "p" && key != "u") {
          EXPECT_TRUE(value.is_boolean()) << text;
          ++more;
        }
      }
    }
  }
  for (const int count : {marks, optional, more}) EXPECT_GT(count, 10);
}

TEST_F(CallsConstraintTest, ArgumentsInTagsThatCannotBeHeldAreRefused) {
  ConstraintMaker maker(tokens_);
  for (const auto& [schema, path] : std::vector<std::pair<std::string, std::string>>{
           {R"({"anyOf": [{}, {"required": ["a"]}]})", ".anyOf"},
           {R"({"const": {}})", ""},
           {R"({"patternProperties": {"^a": {}}})", ".patternProperties"},
           {R"({"propertyNames": {"minLength": 2}})", ".propertyNames"},
           {R"({"minProperties": 1})", ".minProperties"},
           {R"({"maxProperties": 1})", ".maxProperties"},
           {R"({"properties": {"a>": {}}})", ""},
           {R"({"properties": {"a": {"type": "string", "anyOf": [{"minLength": 1}, {}]}}})",
            ".properties.a.anyOf"},
           {R"({"properties": {"a": {"uniqueItems": true}}})", ".properties.a.uniqueItems"}}) {
    const Tools tools = {{"f", schema}};
    const StructuredOutput output =
        *ForceCalls(**ChooseToolFormat("qwen3_coder", ""), tools, /*parallel=*/true);
    const std::string message(maker.Prepare(output).message());
    EXPECT_TRUE(message.starts_with("structured_output.calls[0].content" + path + ": ")) << message;
  }
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
