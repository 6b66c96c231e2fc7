#include "local/marked_tags.h"

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
#include "tokenizer/testing/tiny_vocabs.h"

namespace tokamak {
namespace {

using Kind = StructuredOutput::Kind;

// The vocabulary has all bytes, some words, and the special tokens <|begin|> and <|im_end|>.
class MarkedTagsTest : public ::testing::Test {
 protected:
  static StructuredOutput Calls() {
    StructuredOutput output{.kind = Kind::kTags};
    output.tags = {{.begin = "<|begin|>call f<|im_end|>", .schema = R"({"type": "integer"})"},
                   {.begin = "<|begin|>call g<|im_end|>", .schema = R"({"enum": ["x"]})"}};
    output.starts_with_tag = output.ends_after_tag = true;
    return output;
  }
  void Start(const StructuredOutput& output) {
    auto made = maker_.Make(output, 1);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    constraint_ = std::move(made->front());
  }
  std::set<std::string> Allowed() {
    std::vector<uint32_t> mask(static_cast<size_t>(tokenizer_->vocab_size()) / 32 + 1);
    EXPECT_TRUE(constraint_->Allow(mask).ok());
    std::set<std::string> pieces;
    for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
      if ((mask[static_cast<size_t>(id) / 32] >> id % 32 & 1) == 0) continue;
      pieces.emplace(tokenizer_->TokenPiece(id));
    }
    return pieces;
  }
  // Takes tokens by their pieces, each of which must be allowed.
  void Take(const std::vector<std::string>& pieces) {
    for (const std::string& piece : pieces) {
      EXPECT_TRUE(Allowed().contains(piece)) << piece;
      EXPECT_TRUE(constraint_->Accept(IdOf(piece))) << piece;
    }
  }
  int32_t IdOf(std::string_view piece) const {
    for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
      if (tokenizer_->TokenPiece(id) == piece) return id;
    }
    ADD_FAILURE() << piece;
    return 0;
  }

  const std::shared_ptr<const Tokenizer> tokenizer_ =
      testing::MakeTokenizer(testing::TinyBytePairs()).value();
  ConstraintMaker maker_{MakeConstraintTokens(*tokenizer_)};
  std::unique_ptr<TokenConstraint> constraint_;
};

TEST_F(MarkedTagsTest, AnAnswerIsOneTagAndItsBeginningChoosesTheSchema) {
  Start(Calls());
  // Spelling the special token out is something else.
  EXPECT_EQ(Allowed(), std::set<std::string>({"<|begin|>"}));
  EXPECT_FALSE(constraint_->Accept(IdOf("<")));
  Take({"<|begin|>"});
  for (const std::string& piece : Allowed()) {
    EXPECT_TRUE(std::string_view("call f").starts_with(piece) ||
                std::string_view("call g").starts_with(piece))
        << piece;
  }
  Take({"c", "a", "l", "l", " "});
  EXPECT_EQ(Allowed(), std::set<std::string>({"f", "g"}));
  Take({"g"});
  EXPECT_EQ(Allowed(), std::set<std::string>({"<|im_end|>"}));
  EXPECT_FALSE(constraint_->complete());
  Take({"<|im_end|>"});
  EXPECT_EQ(Allowed(), std::set<std::string>({"\""}));
  Take({"\"", "x", "\""});
  EXPECT_TRUE(constraint_->finished());
}

TEST_F(MarkedTagsTest, ReasoningComesBeforeItAndCannotBeginIt) {
  StructuredOutput output = Calls();
  output.reasoning = {.open = "<think>", .close = "</think>"};
  Start(output);
  EXPECT_TRUE(Allowed().contains("<|begin|>"));
  Take({"<", "t", "h", "i", "n", "k", ">", "a"});
  EXPECT_FALSE(Allowed().contains("<|begin|>"));
  EXPECT_FALSE(Allowed().contains("<|im_end|>"));
  Take({"<", "/", "t", "h", "i", "n", "k", ">"});
  EXPECT_EQ(Allowed(), std::set<std::string>({"<|begin|>", "\n", "\n\n"}));
  Take({"<|begin|>", "c", "a", "l", "l", " ", "f", "<|im_end|>", "4", "2"});
  EXPECT_TRUE(constraint_->complete());
  EXPECT_FALSE(constraint_->finished());
}

TEST_F(MarkedTagsTest, AnErrorNamesTheTag) {
  StructuredOutput output = Calls();
  output.tags[1].schema = R"({"type": "thing"})";
  EXPECT_TRUE(
      maker_.Prepare(output).message().starts_with("structured_output.tags[1].content.type"))
      << maker_.Prepare(output).message();
}

std::shared_ptr<const Tokenizer> HarmonyTokenizer() {
  GgufVocab spec = testing::TinyBytePairs();
  for (const std::string_view token : kHarmonyTokens) {
    if (token == "<|return|>" || token == "<|call|>") {
      spec.end_tokens.push_back(static_cast<int32_t>(spec.tokens.size()));
    }
    spec.tokens.emplace_back(token);
    spec.types.push_back(TokenType::kControl);
    spec.scores.push_back(0);
  }
  return testing::MakeTokenizer(std::move(spec)).value();
}

// An answer drawn from the masks, without end tokens, as the engine core draws them before an
// answer is complete. Reasoning ends soon.
std::string Draw(TokenConstraint& constraint, const Tokenizer& tokenizer, std::mt19937& random) {
  std::string text;
  for (int i = 0; i < 2000 && !constraint.finished(); ++i) {
    std::vector<uint32_t> mask(static_cast<size_t>(tokenizer.vocab_size()) / 32 + 1);
    EXPECT_TRUE(constraint.Allow(mask).ok());
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      if ((mask[static_cast<size_t>(id) / 32] >> id % 32 & 1) == 0) continue;
      if (tokenizer.IsEndOfGeneration(id)) continue;
      const int copies = tokenizer.TokenPiece(id) == "<|end|>" ? 50 : 1;
      allowed.insert(allowed.end(), static_cast<size_t>(copies), id);
    }
    if (allowed.empty()) break;
    const int32_t token = allowed[random() % allowed.size()];
    EXPECT_TRUE(constraint.Accept(token)) << text;
    text += tokenizer.TokenPiece(token);
  }
  EXPECT_TRUE(constraint.finished()) << text;
  return text;
}

TEST(HarmonyAnswers, RandomOnesAreReadAsWhatTheyMustBe) {
  const std::string schema = R"({"type": "object", "properties": {"n": {"type": "integer",
      "minimum": 0, "maximum": 99}}, "required": ["n"], "additionalProperties": false})";
  const std::regex form(R"(\{"n":[0-9]{1,2}\})");
  auto format = std::make_shared<AnswerFormat>();
  format->tools = *ChooseToolFormat("openai", "");
  format->reasoning = *ChooseReasoningFormat("openai_gptoss", "");
  const std::pair<std::string, std::string> tools[] = {{"f", schema}, {"get", schema}};
  StructuredOutput calls = ForceCalls(*format->tools, tools, /*parallel=*/true).value();
  calls.whitespace_pattern = "";
  const StructuredOutput json =
      InFinalMessage({.kind = Kind::kJsonSchema, .text = schema, .whitespace_pattern = ""}).value();
  const auto tokenizer = HarmonyTokenizer();
  ConstraintMaker maker(MakeConstraintTokens(*tokenizer));
  std::mt19937 random(7);
  std::map<std::string, int> names;
  int reasoned = 0;
  for (int i = 0; i < 200; ++i) {
    StructuredOutput output = i % 2 == 0 ? json : calls;
    output.reasoning = FreeReasoning("<|start|>assistant", format->reasoning);
    const auto constraints = maker.Make(output, 1);
    ASSERT_TRUE(constraints.ok()) << constraints.status().ToString();
    const std::string text = Draw(*constraints->front(), *tokenizer, random);
    AnswerParser parser(format);
    AnswerPart answer = parser.Append(text), rest = parser.Finish();
    answer.content += rest.content;
    answer.calls.insert(answer.calls.end(), rest.calls.begin(), rest.calls.end());
    reasoned += answer.reasoning.empty() ? 0 : 1;
    if (i % 2 == 0) {
      EXPECT_TRUE(std::regex_match(answer.content, form)) << text;
      EXPECT_TRUE(answer.calls.empty()) << text;
      continue;
    }
    EXPECT_EQ(answer.content, "") << text;
    ASSERT_EQ(answer.calls.size(), 1u) << text;
    EXPECT_TRUE(std::regex_match(answer.calls[0].arguments, form)) << text;
    ++names[answer.calls[0].name];
  }
  EXPECT_GT(reasoned, 20);
  EXPECT_LT(reasoned, 200);
  EXPECT_EQ(names.size(), 2u);
}

TEST(HarmonyAnswers, OtherFormsThanJsonAreRefused) {
  const auto message = InFinalMessage({.kind = Kind::kRegex, .text = "a"});
  EXPECT_EQ(message.status().code(), StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tokamak
