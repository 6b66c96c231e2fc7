#include "local/messages_constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/harmony.h"
#include "chat/tool_calls.h"
#include "local/testing/harmony_tokenizer.h"
#include "local/testing/looking_ahead.h"
#include "local/text_decoder.h"
#include "tokenizer/testing/tiny_vocabs.h"

namespace tokamak {
namespace {

using Kind = StructuredOutput::Kind;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kSchema[] = R"({"type": "object", "properties": {"n": {"type": "integer",
    "minimum": 0, "maximum": 99}}, "required": ["n"], "additionalProperties": false})";

const ToolFormat& Calls() { return **ChooseToolFormat("openai", ""); }

std::vector<std::pair<std::string, std::string>> Tools() {
  return {{"f", kSchema}, {"get_the", kSchema}};
}

class MessagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    tokenizer_ = testing::TinyHarmonyTokenizer();
    tokens_ = MakeConstraintTokens(tokenizer_);
    for (size_t id = 0; id < tokens_->bytes.size(); ++id) {
      ids_[tokens_->bytes[id]] = static_cast<TokenId>(id);
    }
  }
  std::unique_ptr<TokenConstraint> Make(StructuredOutput output, bool commentary = false,
                                        std::string_view prompt = "<|start|>assistant") {
    output.messages = HarmonyMessages(prompt, commentary);
    ConstraintMaker maker(tokens_);
    EXPECT_TRUE(maker.Prepare(output).ok()) << maker.Prepare(output).ToString();
    EXPECT_TRUE(maker.prepared(output));
    auto made = maker.Make(output, 1);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    return std::make_unique<testing::LookingAhead>(std::move(made->front()));
  }
  std::vector<uint32_t> Mask(TokenConstraint& constraint) const {
    std::vector<uint32_t> mask(tokens_->bytes.size() / 32 + 1);
    EXPECT_TRUE(constraint.Allow(mask).ok());
    return mask;
  }
  static bool Has(const std::vector<uint32_t>& mask, TokenId id) {
    return (mask[static_cast<size_t>(id) / 32] >> id % 32 & 1) != 0;
  }
  std::set<std::string> Allowed(TokenConstraint& constraint) const {
    const std::vector<uint32_t> mask = Mask(constraint);
    std::set<std::string> pieces;
    for (size_t id = 0; id < tokens_->bytes.size(); ++id) {
      if (Has(mask, static_cast<TokenId>(id))) pieces.insert(tokens_->bytes[id]);
    }
    return pieces;
  }
  // Takes a token, which must be allowed exactly if `allowed`.
  void Take(TokenConstraint& constraint, std::string_view piece, bool allowed = true) {
    const TokenId id = ids_.at(std::string(piece));
    ASSERT_EQ(Has(Mask(constraint), id), allowed) << piece;
    if (allowed) {
      ASSERT_TRUE(constraint.Accept(id)) << piece;
    }
  }
  // Takes the text of ordinary tokens, byte by byte, even if it looks like a mark.
  void Spell(TokenConstraint& constraint, std::string_view text) {
    for (const char c : text) Take(constraint, std::string(1, c));
  }
  std::vector<TokenId> Draw(TokenConstraint& constraint);
  // Decodes an answer's tokens and reads the text, as the server does.
  AnswerPart Read(const std::vector<TokenId>& answer) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const ConstraintTokens> tokens_;
  std::map<std::string, TokenId> ids_;
  std::mt19937 random_{7};
};

TEST_F(MessagesTest, HeadersAreTokensAndNotTextThatLooksLikeThem) {
  StructuredOutput output = ForceCalls(Calls(), Tools(), /*parallel=*/true).value();
  const auto constraint = Make(output);
  EXPECT_EQ(Allowed(*constraint), (std::set<std::string>{"<|start|>", "<|channel|>"}));
  EXPECT_FALSE(constraint->Accept(ids_.at("<")));
  const auto again = Make(output);
  Take(*again, "<|channel|>");
  for (const std::string& piece : Allowed(*again)) {
    EXPECT_TRUE(std::string_view("analysis").starts_with(piece) ||
                std::string_view("commentary to=functions.").starts_with(piece))
        << piece;
  }
  Spell(*again, "commentary to=functions.");
  EXPECT_TRUE(Allowed(*again).contains("f"));
  Spell(*again, "g");
  EXPECT_FALSE(Allowed(*again).contains("f"));
  Spell(*again, "et_the ");
  EXPECT_EQ(Allowed(*again), std::set<std::string>{"<|constrain|>"});
  Take(*again, "<|constrain|>");
  Spell(*again, "json");
  EXPECT_EQ(Allowed(*again), std::set<std::string>{"<|message|>"});
  Take(*again, "<|message|>");
  Spell(*again, R"({"n": 42)");
  EXPECT_FALSE(again->complete());
  Spell(*again, "}");
  EXPECT_TRUE(again->finished());
}

TEST_F(MessagesTest, AHeaderWithoutAnAlternativeIsForced) {
  const auto constraint = Make(ForceCalls(Calls(), Tools(), /*parallel=*/true).value());
  const auto forced = [&](int32_t most) {
    std::string text;
    for (const TokenId id : constraint->ForcedTokens(most)) {
      text += tokens_->bytes[static_cast<size_t>(id)];
    }
    return text;
  };
  EXPECT_EQ(forced(9), "");
  Take(*constraint, "<|channel|>");
  Spell(*constraint, "commentary to=functions.");
  EXPECT_EQ(forced(9), "");
  Spell(*constraint, "ge");
  EXPECT_EQ(forced(99), "t_the <|constrain|>json<|message|>");
  EXPECT_EQ(forced(1), "t");
  Spell(*constraint, "t_the ");
  EXPECT_EQ(forced(99), "<|constrain|>json<|message|>");
  Take(*constraint, "<|constrain|>");
  Spell(*constraint, "js");
  EXPECT_EQ(forced(99), "on<|message|>");
}

TEST_F(MessagesTest, FreeTextMaySpellMarksAndOnlyTheTokenEndsIt) {
  const auto constraint = Make({.kind = Kind::kRegex, .text = "a+"});
  Take(*constraint, "<|channel|>");
  Spell(*constraint, "analysis");
  Take(*constraint, "<|message|>");
  Spell(*constraint, "<|end|><|start|>assistant<|channel|>final<|message|>a");
  for (const char* mark :
       {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|call|>", "<|return|>"}) {
    Take(*constraint, mark, /*allowed=*/false);
  }
  EXPECT_FALSE(constraint->complete());
  Take(*constraint, "<|end|>");
  EXPECT_EQ(Allowed(*constraint), std::set<std::string>{"<|start|>"});
  Take(*constraint, "<|start|>");
  Spell(*constraint, "assistant");
  EXPECT_EQ(Allowed(*constraint), std::set<std::string>{"<|channel|>"});
  Take(*constraint, "<|channel|>");
  Spell(*constraint, "final");
  Take(*constraint, "<|message|>");
  Spell(*constraint, "aa");
  EXPECT_TRUE(constraint->complete());
  EXPECT_FALSE(constraint->finished());
}

TEST_F(MessagesTest, AnalysisThatSpellsMarksIsReadAsAnalysis) {
  const auto constraint = Make({.kind = Kind::kRegex, .text = "a+"});
  const std::string spelled = "<|end|><|start|>assistant<|channel|>final<|message|>a";
  std::vector<TokenId> answer;
  const auto take = [&](std::string_view piece) { answer.push_back(ids_.at(std::string(piece))); };
  const auto spell = [&](std::string_view text) {
    for (size_t i = 0; i < text.size(); ++i) take(text.substr(i, 1));
  };
  take("<|channel|>");
  spell("analysis");
  take("<|message|>");
  spell(spelled);
  take("<|end|>");
  take("<|start|>");
  spell("assistant");
  take("<|channel|>");
  spell("final");
  take("<|message|>");
  spell("aaa");
  for (const TokenId token : answer) ASSERT_TRUE(constraint->Accept(token));
  EXPECT_TRUE(constraint->complete());
  const AnswerPart read = Read(answer);
  EXPECT_EQ(read.reasoning, spelled);
  EXPECT_EQ(read.content, "aaa");
}

// These tokens are added to the vocabulary as text, which strings of JSON may contain.
TEST_F(MessagesTest, StringsMaySpellMarksAndDoNotContainThem) {
  const auto constraint = Make({.kind = Kind::kJsonSchema, .text = R"({"type": "string"})"});
  Take(*constraint, "<|channel|>");
  Spell(*constraint, "final");
  Take(*constraint, "<|message|>");
  Spell(*constraint, "\"");
  for (const std::string_view mark : kHarmonyTokens) Take(*constraint, mark, /*allowed=*/false);
  EXPECT_FALSE(constraint->Accept(ids_.at("<|end|>")));
  Spell(*constraint, "<|end|>\"");
  EXPECT_TRUE(constraint->finished());
}

TEST_F(MessagesTest, ThePromptMayHaveBegunTheAnalysis) {
  const auto constraint = Make({.kind = Kind::kRegex, .text = "a"}, /*commentary=*/false,
                               "<|start|>assistant<|channel|>analysis<|message|>");
  Spell(*constraint, "x");
  Take(*constraint, "<|end|>");
  Take(*constraint, "<|start|>");
}

// An answer drawn from the masks, without end tokens, which end it where it is complete. Free text
// ends soon.
std::vector<TokenId> MessagesTest::Draw(TokenConstraint& constraint) {
  std::vector<TokenId> answer;
  for (int i = 0; i < 2000 && !constraint.finished(); ++i) {
    if (constraint.complete() && random_() % 4 == 0) break;
    const std::vector<uint32_t> mask = Mask(constraint);
    TokenId token = ids_.at("<|end|>");
    if (!Has(mask, token) || random_() % 3 != 0) {
      std::vector<TokenId> allowed;
      for (size_t id = 0; id < tokens_->bytes.size(); ++id) {
        const auto one = static_cast<TokenId>(id);
        if (Has(mask, one) && !tokenizer_->IsEndOfGeneration(one)) allowed.push_back(one);
      }
      EXPECT_FALSE(allowed.empty());
      if (allowed.empty()) break;
      token = allowed[random_() % allowed.size()];
    }
    EXPECT_TRUE(constraint.Accept(token));
    answer.push_back(token);
  }
  EXPECT_TRUE(constraint.complete());
  return answer;
}

AnswerPart MessagesTest::Read(const std::vector<TokenId>& answer) const {
  auto format = std::make_shared<AnswerFormat>();
  format->tools = &Calls();
  format->reasoning = *ChooseReasoningFormat("openai_gptoss", "");
  format->marks_are_told = true;
  SamplingParams sampling;
  for (const std::string_view mark : kHarmonyTokens) {
    sampling.shown_special_tokens.push_back(ids_.at(std::string(mark)));
  }
  const auto decoder = MakeTextDecoder(tokenizer_, sampling).value();
  AnswerParser parser(format);
  AnswerPart whole;
  const auto take = [&whole](const AnswerPart& part) {
    whole.reasoning += part.reasoning;
    whole.content += part.content;
    whole.calls.insert(whole.calls.end(), part.calls.begin(), part.calls.end());
  };
  for (const TokenId token : answer) {
    OutputChunk chunk;
    decoder->Append(token, /*may_stop=*/true, &chunk);
    take(parser.Append(chunk.text, chunk.special_at));
  }
  OutputChunk last;
  decoder->Flush(&last);
  take(parser.Append(last.text, last.special_at));
  take(parser.Finish());
  return whole;
}

TEST_F(MessagesTest, RandomAnswersAreReadAsWhatTheyMustBe) {
  const std::regex json(R"(\{"n":[0-9]{1,2}\})"), word("[a-f]{3,5}");
  const std::regex tags("[^<]*(<t>(true|false)</t>[^<]*)*");
  StructuredOutput object = {.kind = Kind::kJsonSchema, .text = kSchema, .whitespace_pattern = ""};
  StructuredOutput forced = ForceCalls(Calls(), Tools(), true).value();
  StructuredOutput free = AllowCalls(Calls(), Tools(), true).value();
  free.whitespace_pattern = forced.whitespace_pattern = "";
  StructuredOutput both = object;
  both.calls = forced.calls;
  StructuredOutput tagged{.kind = Kind::kTags};
  tagged.tags = {{.begin = "<t>", .schema = R"({"type": "boolean"})", .end = "</t>"}};
  tagged.triggers = {"<"};
  struct Case {
    StructuredOutput output;
    const std::regex* form;  // of the content; null: any
    bool may_call = false, must_call = false, commentary = false;
  };
  const Case cases[] = {
      {object, &json},
      {forced, &json, true, true},
      {free, nullptr, true, false, true},
      {both, &json, true},
      {{.kind = Kind::kRegex, .text = "[a-f]{3,5}"}, &word},
      {tagged, &tags},
  };
  std::map<size_t, int> calls, reasoned;
  std::set<std::string> names;
  const int rounds = 60;
  for (size_t i = 0; i < std::size(cases); ++i) {
    const Case& one = cases[i];
    for (int round = 0; round < rounds; ++round) {
      const auto constraint = Make(one.output, one.commentary);
      const std::vector<TokenId> drawn = Draw(*constraint);
      const std::string text = tokenizer_->Decode(drawn).value();
      const AnswerPart answer = Read(drawn);
      reasoned[i] += answer.reasoning.empty() ? 0 : 1;
      if (answer.calls.empty()) {
        EXPECT_FALSE(one.must_call) << text;
        EXPECT_TRUE(!one.form || std::regex_match(answer.content, *one.form)) << text;
        continue;
      }
      EXPECT_TRUE(one.may_call) << text;
      if (!one.commentary) {
        EXPECT_EQ(answer.content, "") << text;
      }
      ASSERT_EQ(answer.calls.size(), 1u) << text;
      EXPECT_TRUE(std::regex_match(answer.calls[0].arguments, json)) << text;
      names.insert(answer.calls[0].name);
      ++calls[i];
    }
    EXPECT_GT(reasoned[i], 0) << i;
    EXPECT_LT(reasoned[i], rounds) << i;
  }
  EXPECT_EQ(names, (std::set<std::string>{"f", "get_the"}));
  for (const size_t either : {size_t{2}, size_t{3}}) {
    EXPECT_GT(calls[either], 0);
    EXPECT_LT(calls[either], rounds);
  }
}

TEST(Messages, RefusesWhatCannotBeHeld) {
  const auto tiny = testing::MakeTokenizer(testing::TinyBytePairs()).value();
  StructuredOutput output{.kind = Kind::kJsonObject};
  output.messages = HarmonyMessages("", false);
  ConstraintMaker without(MakeConstraintTokens(tiny));
  EXPECT_EQ(without.Prepare(output).code(), StatusCode::kUnimplemented);
  EXPECT_THAT(without.Prepare(output).message(), HasSubstr("no token \"<|start|>\""));

  ConstraintMaker maker(MakeConstraintTokens(testing::TinyHarmonyTokenizer()));
  EXPECT_TRUE(maker.Prepare(output).ok());
  output.messages->answer = "final";
  EXPECT_EQ(maker.Prepare(output).code(), StatusCode::kInvalidArgument);
  output.messages->answer = "<|message|>";
  output.messages->end = "</end>";
  EXPECT_EQ(maker.Prepare(output).code(), StatusCode::kInvalidArgument);
  output.messages.reset();
  output.must_call = true;
  EXPECT_THAT(maker.Prepare(output).message(), StartsWith("structured_output.calls: "));
  output.calls = {{.begin = "<|message|>", .schema = "{}", .end = ""},
                  {.begin = "<|message|>", .schema = R"({"type": "thing"})", .end = ""}};
  EXPECT_THAT(maker.Prepare(output).message(),
              StartsWith("structured_output.calls[1].content.type: "));
}

}  // namespace
}  // namespace tokamak
