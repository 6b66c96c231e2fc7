#include "local/thinking_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "local/testing/looking_ahead.h"
#include "tokenizer/testing/tiny_vocabs.h"

namespace tokamak {
namespace {

using Marks = StructuredOutput::Reasoning;

class ThinkingBudgetTest : public ::testing::Test {
 protected:
  ThinkingBudgetTest()
      : tokens_(MakeConstraintTokens(testing::MakeTokenizer(testing::TinyBytePairs()).value())) {}

  void Start(int32_t budget, const Marks& marks,
             std::unique_ptr<TokenConstraint> answer = nullptr) {
    auto made = MakeThinkingBudget(marks, budget, tokens_, std::move(answer));
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    constraint_ = std::make_unique<testing::LookingAhead>(*std::move(made));
  }
  // A request's constraint, which the two fields decide.
  void Start(const SamplingParams& params) {
    auto made = ConstraintMaker(tokens_).MakeFor(params);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    ASSERT_EQ(made->size(), static_cast<size_t>(params.n));
    constraint_ = std::make_unique<testing::LookingAhead>(std::move(made->front()));
  }
  TokenId Id(const std::string& piece) const {
    const auto found = std::find(tokens_->bytes.begin(), tokens_->bytes.end(), piece);
    EXPECT_NE(found, tokens_->bytes.end()) << piece;
    return static_cast<TokenId>(found - tokens_->bytes.begin());
  }
  // The only token that may come next, "any" if all may, "some" otherwise.
  std::string Next() {
    std::vector<uint32_t> mask((tokens_->bytes.size() + 31) / 32);
    EXPECT_TRUE(constraint_->Allow(mask).ok());
    std::vector<std::string> pieces;
    for (size_t id = 0; id < tokens_->bytes.size(); ++id) {
      if ((mask[id / 32] >> id % 32 & 1) != 0) pieces.push_back(tokens_->bytes[id]);
    }
    if (pieces.size() == 1) return pieces[0];
    return pieces.size() == tokens_->bytes.size() ? "any" : "some";
  }
  void Take(const std::vector<std::string>& pieces) {
    for (const std::string& piece : pieces) EXPECT_TRUE(constraint_->Accept(Id(piece))) << piece;
  }

  const Marks begun_ = {.open = "12", .close = "<|im_end|>", .begun = true};
  const Marks not_begun_ = {.open = "12", .close = "<|im_end|>"};
  const std::shared_ptr<const ConstraintTokens> tokens_;
  std::unique_ptr<TokenConstraint> constraint_;
};

TEST_F(ThinkingBudgetTest, ForcesTheClosingMarkAfterSoManyTokens) {
  Start(2, begun_);
  EXPECT_EQ(constraint_->num_free(), 2);
  Take({"t"});
  EXPECT_EQ(constraint_->num_free(), 1);
  EXPECT_EQ(Next(), "any");
  EXPECT_TRUE(constraint_->complete());
  const std::unique_ptr<TokenConstraint> ahead = constraint_->Clone();
  EXPECT_TRUE(ahead->Accept(Id("the")));
  EXPECT_EQ(ahead->ForcedTokens(4), std::vector<TokenId>{Id("<|im_end|>")});
  Take({"the"});
  EXPECT_EQ(Next(), "<|im_end|>");
  EXPECT_FALSE(constraint_->complete());
  EXPECT_EQ(constraint_->ForcedTokens(4), std::vector<TokenId>{Id("<|im_end|>")});
  EXPECT_FALSE(constraint_->Clone()->Accept(Id("t")));
  Take({"<|im_end|>"});
  EXPECT_EQ(Next(), "any");
  EXPECT_EQ(constraint_->num_free(), INT32_MAX);
  // The answer begins here, even if it looks like reasoning.
  Take({"1", "2", "t", "t", "t"});
  EXPECT_EQ(Next(), "any");
  EXPECT_TRUE(constraint_->complete());
  EXPECT_FALSE(constraint_->finished());
}

TEST_F(ThinkingBudgetTest, EndsReasoningAtOnceWithABudgetOfZero) {
  Start(0, begun_);
  EXPECT_EQ(Next(), "<|im_end|>");
  EXPECT_EQ(constraint_->num_free(), 0);
  Start(0, not_begun_);
  EXPECT_EQ(constraint_->num_free(), 1);
  Take({"\n", "1"});
  EXPECT_EQ(Next(), "any");
  Take({"2"});
  EXPECT_EQ(Next(), "<|im_end|>");
}

TEST_F(ThinkingBudgetTest, LeavesReasoningThatEndsByItselfAlone) {
  Start(3, not_begun_);
  EXPECT_EQ(constraint_->num_free(), 4);
  Take({"1", "2", "t", "t", "<|im_end|>", "1", "2", "t", "t", "t"});
  EXPECT_EQ(Next(), "any");
}

TEST_F(ThinkingBudgetTest, LeavesAnswersWithoutReasoningAlone) {
  for (const char* first : {"t", "2"}) {
    Start(1, not_begun_);
    Take({"\n\n", first, "1", "2", "t", "t", "t"});
    EXPECT_EQ(Next(), "any") << first;
  }
  Start(0, {.open = "", .close = "<|im_end|>"});
  EXPECT_EQ(Next(), "any");
  Start(INT32_MAX, not_begun_);
  EXPECT_EQ(Next(), "any");
  EXPECT_EQ(constraint_->num_free(), INT32_MAX);
}

TEST_F(ThinkingBudgetTest, ForcesTheRestOfAMarkThatHasBegun) {
  Start(2, {.open = "12", .close = "cat1", .begun = true});
  Take({"t", "cat"});
  EXPECT_EQ(Next(), "1");
  Take({"1"});
  EXPECT_EQ(Next(), "any");
  Start(1, {.open = "12", .close = "cat1", .begun = true});
  Take({"t"});
  EXPECT_EQ(Next(), "cat");
  EXPECT_EQ(constraint_->ForcedTokens(4), (std::vector<TokenId>{Id("cat"), Id("1")}));
  EXPECT_EQ(constraint_->ForcedTokens(1), std::vector<TokenId>{Id("cat")});
  Take({"cat"});
  EXPECT_EQ(Next(), "1");
  EXPECT_FALSE(constraint_->complete());
  // A mark of one token is that token, whatever comes before.
  Start(1, begun_);
  Take({"<"});
  EXPECT_EQ(Next(), "<|im_end|>");
}

// The emoji has four bytes, each of which is a token.
TEST_F(ThinkingBudgetTest, LetsACharacterEndFirst) {
  Start(1, begun_);
  Take({"\xf0", "\x9f"});
  EXPECT_EQ(Next(), "any");
  EXPECT_EQ(constraint_->num_free(), 1);
  Take({"\x91", "\x8d"});
  EXPECT_EQ(Next(), "<|im_end|>");
  Start(1, begun_);
  Take({"\xf0"});
  EXPECT_EQ(Next(), "any");
  Take({"\xf0", "\xf0"});
  EXPECT_EQ(Next(), "any");
  Take({"\xf0"});
  EXPECT_EQ(Next(), "<|im_end|>") << "three more tokens must do";
}

TEST_F(ThinkingBudgetTest, TakesTokensThatTheTokenizerDoesNotHave) {
  Start(1, begun_);
  std::vector<uint32_t> mask((tokens_->bytes.size() + 31) / 32 + 1);
  EXPECT_TRUE(constraint_->Clone()->Allow(mask).ok());
  const auto beyond = static_cast<TokenId>(tokens_->bytes.size() + 31);
  EXPECT_NE(mask[static_cast<size_t>(beyond) / 32] >> beyond % 32 & 1, 0u);
  EXPECT_TRUE(constraint_->Accept(beyond));
  EXPECT_EQ(Next(), "<|im_end|>");
}

TEST_F(ThinkingBudgetTest, LeavesTheAnswerToItsForm) {
  SamplingParams params;
  params.n = 2;
  params.structured_output = {.kind = StructuredOutput::Kind::kRegex, .text = "12cat"};
  params.structured_output->reasoning = begun_;
  params.thinking_token_budget = 1;
  params.thinking = begun_;
  Start(params);
  EXPECT_EQ(constraint_->num_free(), 0) << "the answer must not end";
  Take({"t"});
  EXPECT_EQ(Next(), "<|im_end|>");
  EXPECT_FALSE(constraint_->complete());
  Take({"<|im_end|>", "1"});
  EXPECT_EQ(Next(), "2");
  Take({"2", "cat"});
  EXPECT_TRUE(constraint_->finished());
  // The form has text that looks like reasoning, but it leaves no reasoning.
  params.structured_output->reasoning.reset();
  params.thinking = not_begun_;
  Start(params);
  Take({"1", "2"});
  EXPECT_EQ(Next(), "some");
  Take({"cat"});
  EXPECT_TRUE(constraint_->finished());
}

TEST_F(ThinkingBudgetTest, NeedsAMarkThatTokensSpell) {
  const auto unspelled = MakeConstraintTokens({"a", "b"}, [](int32_t) { return false; });
  const Status no_tokens = MakeThinkingBudget(begun_, 1, unspelled, nullptr).status();
  EXPECT_EQ(no_tokens.code(), StatusCode::kUnimplemented);
  SamplingParams params;
  params.thinking_token_budget = 1;
  const Status no_marks = ConstraintMaker(tokens_).MakeFor(params).status();
  EXPECT_EQ(no_marks.code(), StatusCode::kUnimplemented);
  params.thinking = begun_;
  const Status no_text = ConstraintMaker(nullptr).MakeFor(params).status();
  EXPECT_EQ(no_text.code(), StatusCode::kUnimplemented);
  for (const Status& status : {no_tokens, no_marks, no_text}) {
    EXPECT_TRUE(status.message().starts_with("thinking_token_budget: ")) << status.ToString();
  }
}

}  // namespace
}  // namespace tokamak
