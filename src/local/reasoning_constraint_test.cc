#include "local/reasoning_constraint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "local/testing/looking_ahead.h"

namespace tokamak {
namespace {

// Allows exactly one text.
class TextConstraint final : public TokenConstraint {
 public:
  TextConstraint(std::shared_ptr<const ConstraintTokens> tokens, std::string text)
      : tokens_(std::move(tokens)), left_(std::move(text)) {}

  Status Allow(std::span<uint32_t> allowed) override {
    for (size_t id = 0; id < tokens_->bytes.size(); ++id) {
      if (Fits(id)) allowed[id / 32] |= uint32_t{1} << id % 32;
    }
    return Status();
  }
  bool Accept(TokenId token) override {
    const auto id = static_cast<size_t>(token);
    if (!Fits(id)) return false;
    left_.erase(0, tokens_->bytes[id].size());
    return true;
  }
  bool complete() const override { return left_.empty(); }
  bool finished() const override { return left_.empty(); }
  std::unique_ptr<TokenConstraint> Clone() const override {
    return std::make_unique<TextConstraint>(*this);
  }
  std::vector<TokenId> ForcedTokens(int32_t most) override {
    std::vector<TokenId> tokens;
    for (size_t id = 0; id < tokens_->bytes.size() && most > 0; ++id) {
      if (tokens.empty() && Fits(id)) tokens.push_back(static_cast<TokenId>(id));
    }
    return tokens;
  }

 private:
  bool Fits(size_t id) const {
    return !tokens_->bytes[id].empty() && left_.starts_with(tokens_->bytes[id]);
  }
  const std::shared_ptr<const ConstraintTokens> tokens_;
  std::string left_;
};

class ReasoningConstraintTest : public ::testing::Test {
 protected:
  void Start(bool begun, const std::string& answer = "{}") {
    auto tokens = std::make_shared<ConstraintTokens>();
    tokens->bytes = {"<",          "think>",
                     "<think>",    "</think>",
                     "</",         "think>\n",
                     "think>{",    "a",
                     "{}",         "\n",
                     "\n\n",       "{",
                     "}",          "",
                     "a</think>{", "<think></think>{",
                     "</think>\n", "</think>\n\n\n"};
    tokens->newlines = {9, 10};
    tokens_ = tokens;
    const auto across =
        std::make_shared<const std::vector<TokenId>>(TokensAcross("</think>", *tokens_));
    constraint_ = std::make_unique<testing::LookingAhead>(MakeReasoningConstraint(
        {.open = "<think>", .close = "</think>", .begun = begun}, tokens_, across,
        [tokens, answer] { return std::make_unique<TextConstraint>(tokens, answer); }));
  }
  // The tokens that may come next, joined by blanks; line breaks are written as $.
  std::string Allowed() {
    std::vector<uint32_t> mask(1);
    EXPECT_TRUE(constraint_->Allow(mask).ok());
    std::string text;
    for (size_t id = 0; id < tokens_->bytes.size(); ++id) {
      if ((mask[0] >> id & 1) == 0) continue;
      text += text.empty() ? "" : " ";
      for (const char c : tokens_->bytes[id]) text += c == '\n' ? '$' : c;
    }
    return text;
  }
  // Takes tokens, each of which must be allowed.
  void Take(const std::vector<std::string>& pieces) {
    for (const std::string& piece : pieces) {
      const auto found = std::find(tokens_->bytes.begin(), tokens_->bytes.end(), piece);
      const auto id = static_cast<size_t>(found - tokens_->bytes.begin());
      std::vector<uint32_t> mask(1);
      EXPECT_TRUE(constraint_->Allow(mask).ok());
      EXPECT_NE(mask[0] >> id & 1, 0u) << piece;
      EXPECT_TRUE(constraint_->Accept(static_cast<TokenId>(id))) << piece;
    }
  }

  std::shared_ptr<const ConstraintTokens> tokens_;
  std::unique_ptr<TokenConstraint> constraint_;
};

TEST_F(ReasoningConstraintTest, AnAnswerMayBeginAtOnceOrWithReasoning) {
  Start(/*begun=*/false);
  EXPECT_EQ(Allowed(), "< <think> {} {");
  Take({"{"});
  EXPECT_EQ(Allowed(), "}");
  Take({"}"});
  EXPECT_TRUE(constraint_->finished());
  Start(/*begun=*/false);
  Take({"<"});
  EXPECT_EQ(Allowed(), "think> think>$ think>{");
  EXPECT_FALSE(constraint_->complete());
}

TEST_F(ReasoningConstraintTest, ReasoningIsFreeAndTheAnswerIsNot) {
  for (const std::vector<std::string>& close : {std::vector<std::string>{"</think>"},
                                                {"</", "think>"},
                                                {"</", "think>\n"},
                                                {"</think>\n"}}) {
    Start(/*begun=*/false);
    Take({"<think>", "a", "{", "}", "\n\n", "{}"});
    EXPECT_FALSE(constraint_->complete());
    Take(close);
    Take({"{}"});
    EXPECT_TRUE(constraint_->finished());
  }
}

TEST_F(ReasoningConstraintTest, AnAnswerMayBeginLikeTheMarker) {
  Start(/*begun=*/false, "<a");
  EXPECT_EQ(Allowed(), "< <think>");
  Take({"<"});
  EXPECT_EQ(Allowed(), "think> think>$ think>{ a");
  Take({"a"});
  EXPECT_TRUE(constraint_->finished());
  // The answer starts anew after the reasoning, even if it had taken the marker's first token.
  Start(/*begun=*/false, "<a");
  Take({"<", "think>", "a", "</think>"});
  EXPECT_EQ(Allowed(), "< $ $$");
  Take({"<", "a"});
  EXPECT_TRUE(constraint_->finished());
  Start(/*begun=*/false, "<think>");
  Take({"<think>", "a", "</think>", "<", "think>"});
  EXPECT_TRUE(constraint_->finished());
}

TEST_F(ReasoningConstraintTest, NoTokenMayEndTheReasoningAndBeginTheAnswer) {
  Start(/*begun=*/true);
  Take({"a", "</"});
  const std::string allowed = Allowed();
  EXPECT_NE(allowed.find("think>$"), std::string::npos) << allowed;
  EXPECT_EQ(allowed.find("think>{"), std::string::npos) << allowed;
  EXPECT_EQ(allowed.find("</think>{"), std::string::npos) << allowed;
  EXPECT_NE(allowed.find("</think>$"), std::string::npos) << allowed;
  EXPECT_EQ(allowed.find("</think>$$$"), std::string::npos) << "the gap is too long";
}

TEST_F(ReasoningConstraintTest, TwoLineBreaksMayFollowTheReasoning) {
  Start(/*begun=*/true);
  Take({"</think>"});
  EXPECT_EQ(Allowed(), "{} $ $$ {");
  Take({"\n"});
  EXPECT_EQ(Allowed(), "{} $ {");
  Take({"\n"});
  EXPECT_EQ(Allowed(), "{} {");
}

}  // namespace
}  // namespace tokamak
