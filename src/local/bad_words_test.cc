#include "local/bad_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tokenizer/testing/tiny_vocabs.h"

namespace tokamak {
namespace {

using ::testing::ElementsAre;

// The rule is that of vLLM's SamplingParams.update_from_tokenizer.
TEST(BadWords, HaveASpaceBeforeIfItBelongsToTheirFirstToken) {
  const auto tokenizer = testing::MakeTokenizer(testing::TinyBytePairs()).value();
  const auto ids_of = [&](const std::string& word) {
    SamplingParams params;
    params.bad_words = {word};
    EXPECT_TRUE(EncodeBadWords(tokenizer.get(), &params).ok());
    EXPECT_TRUE(params.bad_words.empty());
    std::vector<std::vector<std::string>> words;
    for (const std::vector<int32_t>& ids : params.bad_words_ids) {
      words.emplace_back();
      for (const int32_t id : ids) words.back().emplace_back(tokenizer->TokenPiece(id));
    }
    return words;
  };
  EXPECT_THAT(ids_of("t"), ElementsAre(ElementsAre("t"), ElementsAre(" t")));
  EXPECT_THAT(ids_of("  t"), ElementsAre(ElementsAre("t"), ElementsAre(" t")));
  EXPECT_THAT(ids_of("the"), ElementsAre(ElementsAre("the")));  // its space is a token of its own
  EXPECT_THAT(ids_of("12"), ElementsAre(ElementsAre("1", "2")));
  EXPECT_THAT(ids_of("\n\n"), ElementsAre(ElementsAre("\n\n")));
  EXPECT_THAT(ids_of("<|im_end|>"), ElementsAre(ElementsAre("<|im_end|>")));
  EXPECT_THAT(ids_of("the cat"), ElementsAre(ElementsAre("the", " ", "cat")));
}

TEST(BadWords, NeedATokenizer) {
  SamplingParams params;
  params.bad_words = {"the"};
  EXPECT_TRUE(EncodeBadWords(nullptr, &params).message().starts_with("bad_words: "));
}

}  // namespace
}  // namespace tokamak
