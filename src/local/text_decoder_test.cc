#include "local/text_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tokenizer/testing/tiny_vocabs.h"

namespace tokamak {
namespace {

using ::testing::ElementsAre;

// Returns how many tokens are held after each piece, up to a stop string. If there is none, adds
// the number after Flush.
std::vector<int32_t> Held(const std::vector<std::string>& stop,
                          const std::vector<std::string>& pieces) {
  const auto tokenizer = testing::MakeTokenizer(testing::TinyBytePairs()).value();
  SamplingParams sampling;
  sampling.stop = stop;
  const auto decoder = MakeTextDecoder(tokenizer, sampling).value();
  std::vector<int32_t> held;
  std::string text;
  for (const std::string& piece : pieces) {
    const std::vector<int32_t> tokens =
        tokenizer->Encode(piece, {.add_special = false, .parse_special = true}).value();
    for (const int32_t token : tokens) {
      const bool stopped = decoder->Append(token, /*may_stop=*/true, &text);
      held.push_back(decoder->tokens_held());
      if (stopped) return held;
    }
  }
  decoder->Flush(&text);
  held.push_back(decoder->tokens_held());
  return held;
}

TEST(TextDecoder, HoldsTokensUntilPartOfTheirTextIsShown) {
  EXPECT_THAT(Held({"the"}, {"x", "t", "h", "e", "y"}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Held({"the"}, {"x", "t", "h", "x"}), ElementsAre(0, 1, 2, 0, 0));
  EXPECT_THAT(Held({"the"}, {"x", "t", "h"}), ElementsAre(0, 1, 2, 0));
  // "t" of "then" is shown.
  EXPECT_THAT(Held({"hen"}, {"then"}), ElementsAre(0));
  EXPECT_THAT(Held({"en!"}, {"then", "\n\n"}), ElementsAre(0, 0, 0));
  // The first half of a character waits for the second.
  EXPECT_THAT(Held({"!"}, {"ö", "!"}), ElementsAre(1, 0, 1));
  EXPECT_THAT(Held({"ö!"}, {"ö", "!"}), ElementsAre(1, 2, 3));
  // Tokens without text wait only if a stop string may have begun.
  EXPECT_THAT(Held({"the"}, {"x", "<|begin|>", "t", "<|begin|>", "x"}),
              ElementsAre(0, 0, 1, 2, 0, 0));
  // Without stop strings nothing is held for ever.
  EXPECT_THAT(Held({}, {"ö", "t"}), ElementsAre(0, 0, 0, 0));
}

// Structured answers may stop after some tokens and not after others.
TEST(TextDecoder, TokensThatMayNotStopBelongToNoStopString) {
  const auto tokenizer = testing::MakeTokenizer(testing::TinyBytePairs()).value();
  const auto decode = [&](const std::string& stop,
                          const std::vector<std::pair<std::string, bool>>& pieces) {
    SamplingParams sampling;
    sampling.stop = {stop};
    const auto decoder = MakeTextDecoder(tokenizer, sampling).value();
    std::string text;
    for (const auto& [piece, may_stop] : pieces) {
      const std::vector<int32_t> tokens = tokenizer->Encode(piece, {.add_special = false}).value();
      for (const int32_t token : tokens) {
        if (decoder->Append(token, may_stop, &text)) return text + "|";
        EXPECT_LE(decoder->tokens_held(), may_stop ? 2 : 0);
      }
    }
    decoder->Flush(&text);
    return text;
  };
  EXPECT_EQ(decode("yz", {{"x", false}, {"y", true}, {"x", false}, {"z", true}}), "xyxz");
  EXPECT_EQ(decode("yz", {{"x", false}, {"y", false}, {"z", true}}), "xyz");
  EXPECT_EQ(decode("yz", {{"y", true}, {"z", false}, {"x", true}}), "yzx");
  EXPECT_EQ(decode("yz", {{"y", true}, {"x", false}, {"y", true}, {"z", true}}), "yx|");
  EXPECT_EQ(decode("ö!", {{"ö", true}, {"x", false}, {"ö", true}, {"!", true}}), "öx|");
}

}  // namespace
}  // namespace tokamak
