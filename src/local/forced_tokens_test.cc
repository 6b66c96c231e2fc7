#include "local/forced_tokens.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grammar/grammar.h"
#include "local/testing/harmony_tokenizer.h"
#include "tokenizer/testing/tiny_vocabs.h"

namespace tokamak {
namespace {

// The tokens of a forced text, as text: "the", " cat" and the like.
std::vector<std::string> Forced(const std::shared_ptr<const Tokenizer>& tokenizer,
                                const std::string& text, int32_t most = 16) {
  const auto tokens = MakeConstraintTokens(tokenizer);
  std::vector<std::string> pieces;
  for (const TokenId id :
       TokensOfForced([&](size_t bytes) { return text.substr(0, bytes); }, most, *tokens)) {
    pieces.emplace_back(tokenizer->TokenPiece(id));
  }
  return pieces;
}

using Pieces = std::vector<std::string>;

TEST(ForcedTokens, AreThoseOfTheTokenizerButForTheLast) {
  const auto tokenizer = testing::MakeTokenizer(testing::TinyBytePairs()).value();
  const auto encoded = [&](const std::string& text) {
    Pieces pieces;
    const std::vector<TokenId> ids = tokenizer->Encode(text, {.add_special = false}).value();
    for (const TokenId id : ids) pieces.emplace_back(tokenizer->TokenPiece(id));
    return pieces;
  };
  const std::string text = "the cat walking then";
  Pieces pieces = encoded(text);
  pieces.pop_back();
  ASSERT_GT(pieces.size(), 3u);
  EXPECT_EQ(Forced(tokenizer, text), pieces);
  EXPECT_EQ(Forced(tokenizer, text, 1), Pieces{"the"});
  EXPECT_EQ(Forced(tokenizer, "the"), Pieces{});
  EXPECT_EQ(Forced(tokenizer, ""), Pieces{});
  EXPECT_EQ(Forced(tokenizer, text, 0), Pieces{});
  // A text that is cut within a character loses it; one that begins within a character is given up.
  EXPECT_EQ(Forced(tokenizer, text + "\xC3"), pieces);
  EXPECT_EQ(Forced(tokenizer, "\xA9" + text), Pieces{});
}

TEST(ForcedTokens, OfAContinuationHaveNoSpaceInFront) {
  for (GgufVocab& vocab : testing::AllTinyVocabs()) {
    const auto tokenizer = testing::MakeTokenizer(std::move(vocab)).value();
    std::string text;
    for (const std::string& piece : Forced(tokenizer, "the the the the")) text += piece;
    EXPECT_TRUE(std::string("the the the the").starts_with(text)) << text;
  }
  const auto sentence_piece = testing::MakeTokenizer(testing::TinySentencePiece()).value();
  EXPECT_FALSE(Forced(sentence_piece, "the the the the").empty());
}

TEST(ForcedTokens, HaveSpecialTokensForMarks) {
  const auto tokenizer = testing::TinyHarmonyTokenizer();
  const std::string mark = GrammarMark("<|call|>");
  // Nothing can join the text before a special token.
  EXPECT_EQ(Forced(tokenizer, "the" + mark + "thethe"), (Pieces{"the", "<|call|>", "the"}));
  EXPECT_EQ(Forced(tokenizer, mark + mark), (Pieces{"<|call|>", "<|call|>"}));
  EXPECT_EQ(Forced(tokenizer, mark.substr(0, 5)), Pieces{});
  EXPECT_EQ(Forced(tokenizer, GrammarMark("<|unknown|>") + mark), Pieces{});
}

}  // namespace
}  // namespace tokamak
