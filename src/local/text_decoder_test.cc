#include "local/text_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
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
  OutputChunk chunk;
  for (const std::string& piece : pieces) {
    const std::vector<int32_t> tokens =
        tokenizer->Encode(piece, {.add_special = false, .parse_special = true}).value();
    for (const int32_t token : tokens) {
      const bool stopped = decoder->Append(token, /*may_stop=*/true, &chunk);
      held.push_back(decoder->tokens_held());
      if (stopped) return held;
    }
  }
  decoder->Flush(&chunk);
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

// Returns the text of "the then<|begin|> the end" with a stop string.
std::string Decoded(const SamplingParams& sampling) {
  const auto tokenizer = testing::MakeTokenizer(testing::TinyBytePairs()).value();
  const auto decoder = MakeTextDecoder(tokenizer, sampling).value();
  const auto tokens =
      tokenizer->Encode("then<|begin|>then!then", {.add_special = false, .parse_special = true});
  OutputChunk chunk;
  for (const int32_t token : *tokens) {
    if (decoder->Append(token, /*may_stop=*/true, &chunk)) {
      EXPECT_EQ(decoder->tokens_held() == 0, sampling.include_stop_str_in_output);
      return chunk.text;
    }
  }
  decoder->Flush(&chunk);
  return chunk.text;
}

TEST(TextDecoder, IncludesStopStringAndSpecialTokensOnlyIfAsked) {
  SamplingParams sampling;
  sampling.stop = {"en!", "n!t"};
  EXPECT_EQ(Decoded(sampling), "thenth");
  sampling.include_stop_str_in_output = true;
  EXPECT_EQ(Decoded(sampling), "thenthen!");
  sampling.skip_special_tokens = false;
  EXPECT_EQ(Decoded(sampling), "then<|begin|>then!");
  sampling.stop = {"n>t", "<|begin|>th"};  // no text, if special tokens have none
  EXPECT_EQ(Decoded(sampling), "then<|begin|>th");
  sampling.skip_special_tokens = true;
  EXPECT_EQ(Decoded(sampling), "thenthen!then");
}

// Structured answers may stop after some tokens and not after others.
TEST(TextDecoder, TokensThatMayNotStopBelongToNoStopString) {
  const auto tokenizer = testing::MakeTokenizer(testing::TinyBytePairs()).value();
  const auto decode = [&](const std::string& stop,
                          const std::vector<std::pair<std::string, bool>>& pieces) {
    SamplingParams sampling;
    sampling.stop = {stop};
    const auto decoder = MakeTextDecoder(tokenizer, sampling).value();
    OutputChunk chunk;
    for (const auto& [piece, may_stop] : pieces) {
      const std::vector<int32_t> tokens = tokenizer->Encode(piece, {.add_special = false}).value();
      for (const int32_t token : tokens) {
        if (decoder->Append(token, may_stop, &chunk)) return chunk.text + "|";
        EXPECT_LE(decoder->tokens_held(), may_stop ? 2 : 0);
      }
    }
    decoder->Flush(&chunk);
    return chunk.text;
  };
  EXPECT_EQ(decode("yz", {{"x", false}, {"y", true}, {"x", false}, {"z", true}}), "xyxz");
  EXPECT_EQ(decode("yz", {{"x", false}, {"y", false}, {"z", true}}), "xyz");
  EXPECT_EQ(decode("yz", {{"y", true}, {"z", false}, {"x", true}}), "yzx");
  EXPECT_EQ(decode("yz", {{"y", true}, {"x", false}, {"y", true}, {"z", true}}), "yx|");
  EXPECT_EQ(decode("ö!", {{"ö", true}, {"x", false}, {"ö", true}, {"!", true}}), "öx|");
}

// Special tokens are told from text that spells them, wherever chunks begin.
TEST(TextDecoder, TellsWhereShownSpecialTokensAre) {
  const auto tokenizer = testing::MakeTokenizer(testing::TinyBytePairs()).value();
  const auto id = [&](std::string_view text) {
    return tokenizer->Encode(text, {.add_special = false, .parse_special = true}).value();
  };
  const TokenId special = id("<|begin|>").at(0);
  const std::vector<TokenId> half = {id("ö").at(0)};  // the first byte of two
  // Decodes "<|begin|>" as text, half a character, the token, "x" and the token.
  const auto decode = [&](const std::vector<std::string>& stop, std::vector<TokenId> shown) {
    SamplingParams sampling;
    sampling.stop = stop;
    sampling.shown_special_tokens = std::move(shown);
    const auto decoder = MakeTextDecoder(tokenizer, sampling).value();
    std::vector<TokenId> tokens;
    for (const char c : std::string_view("<|begin|>")) tokens.push_back(id({&c, 1}).at(0));
    for (const TokenId token : {half[0], special, id("x").at(0), special}) tokens.push_back(token);
    std::string text;
    std::vector<size_t> at;
    for (size_t i = 0; i <= tokens.size(); ++i) {
      OutputChunk chunk;
      const bool stopped =
          i < tokens.size() && decoder->Append(tokens[i], /*may_stop=*/true, &chunk);
      if (i == tokens.size()) decoder->Flush(&chunk);
      for (const size_t offset : chunk.special_at) {
        EXPECT_LT(offset, chunk.text.size());
        at.push_back(text.size() + offset);
      }
      text += chunk.text;
      if (stopped) break;
    }
    return std::pair(text, at);
  };
  const std::string spelled = "<|begin|>\xEF\xBF\xBD";
  using Found = std::pair<std::string, std::vector<size_t>>;
  EXPECT_EQ(decode({}, {special}), (Found(spelled + "<|begin|>x<|begin|>", {12, 22})));
  EXPECT_EQ(decode({}, {}).second, std::vector<size_t>());
  // Text that may begin a stop string comes later, also in the middle of a name.
  EXPECT_EQ(decode({"|>x<|end"}, {special}), (Found(spelled + "<|begin|>x<|begin|>", {12, 22})));
  EXPECT_EQ(decode({"gin|>x<"}, {special}), (Found(spelled + "<|be", {12})));
}

}  // namespace
}  // namespace tokamak
