// Tests rank files (tiktoken's and tekken.json), what is refused in them, and how formats are
// recognized. load/vendor_vocab_test.cc compares vendors' own files.
#include "tokenizer/tokenizer_file.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/base64.h"
#include "tokenizer/tokenizer.h"

namespace tokamak {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kKimi = "tokenization_kimi.TikTokenTokenizer";

std::string Base64(std::string_view bytes) {
  const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) {
      bits = bits << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0);
    }
    for (size_t j = 0; j < 4; ++j) {
      out += i + j <= bytes.size() ? digits[bits >> (18 - 6 * j) & 63] : '=';
    }
  }
  return out;
}

TEST(Base64, IsDecodedOrRefused) {
  std::string bytes;
  for (const std::string_view text : {"", "a", "ab", "abc", "\xFF\x00\xFE\x80"}) {
    ASSERT_TRUE(DecodeBase64(Base64(text), bytes)) << Base64(text);
    EXPECT_EQ(bytes, text);
  }
  EXPECT_TRUE(DecodeBase64("YQ", bytes));
  EXPECT_EQ(bytes, "a");
  for (const char* bad : {"Y", "YQ=", "YQ===", "Y-==", "YWJj=", "YQ==YQ==", "=", "YWJ\n"}) {
    EXPECT_FALSE(DecodeBase64(bad, bytes)) << bad;
  }
}

// The 256 bytes, "bc", "ab", "abc", "aa", "aaa", then fillers.
std::vector<std::string> Tokens(size_t count) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* text : {"bc", "ab", "abc", "aa", "aaa"}) tokens.emplace_back(text);
  while (tokens.size() < count) tokens.push_back(fmt::format("#{}", tokens.size()));
  tokens.resize(count);
  return tokens;
}

std::string Ranks(const std::vector<std::string>& tokens) {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) text += fmt::format("{} {}\n", Base64(tokens[i]), i);
  return text;
}

std::string Tekken(const std::vector<std::string>& tokens, int size, int special,
                   const std::string& more = "", const std::string& version = "v3") {
  std::string json = fmt::format(
      R"({{"config": {{"pattern": "[a-z]+|[^a-z]+", "num_vocab_tokens": {},
          "default_vocab_size": {}, "default_num_special_tokens": {}, "version": "{}"}}, {}
          "vocab": [)",
      tokens.size(), size, special, version, more);
  for (size_t i = 0; i < tokens.size(); ++i) {
    json += fmt::format(R"({}{{"rank": {}, "token_bytes": "{}", "token_str": null}})", i ? "," : "",
                        i, Base64(tokens[i]));
  }
  return json + "]}";
}

Result<std::shared_ptr<const Tokenizer>> Make(const std::string& file, const char* name = "") {
  Result<VocabSpec> vocab = ParseTokenizerFile(file, "f", name);
  if (!vocab.ok()) return vocab.status();
  return Tokenizer::Create(*std::move(vocab));
}

std::string Error(const std::string& file, const char* name = "") {
  return Make(file, name).status().ToString();
}

TEST(Tekken, NeighboursMergeByRankAndIdsFollowTheSpecialTokens) {
  const auto made = Make(Tekken(Tokens(300), 281, 20));
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  const Tokenizer& tokenizer = **made;
  EXPECT_EQ(tokenizer.vocab_size(), 281);  // ranks from 261 on are not used
  EXPECT_EQ(tokenizer.special().bos, 1);
  const EncodeOptions bare = {.add_special = false};
  const int32_t a = 20 + 'a', bc = 20 + 256, ab = bc + 1, abc = bc + 2, aa = bc + 3, aaa = bc + 4;
  EXPECT_THAT(*tokenizer.Encode("abc", bare), ElementsAre(abc));  // a token as a whole
  // bc merges before ab; then a and bc merge to abc.
  EXPECT_THAT(*tokenizer.Encode("aabc", bare), ElementsAre(a, abc));
  EXPECT_THAT(*tokenizer.Encode("abab", bare), ElementsAre(ab, ab));
  // Equal ranks merge leftmost first: aa aa a. Then aa and a make aaa.
  EXPECT_THAT(*tokenizer.Encode("aaaaa", bare), ElementsAre(aa, aaa));
  EXPECT_THAT(*tokenizer.Encode("</s>", {.add_special = false, .parse_special = true}),
              ElementsAre(2));
  EXPECT_EQ(tokenizer.Encode("</s>", bare)->size(), 4u);
  EXPECT_EQ(*tokenizer.Decode(*tokenizer.Encode("aabc\xC3\xA9 x")), "aabc\xC3\xA9 x");
}

TEST(Tekken, RefusesMalformedFilesByFileAndField) {
  const auto tokens = Tokens(300);
  auto twice = tokens;
  twice[270] = "ab";
  auto gone = tokens;
  gone[7] = "\x08\x08";
  const std::string good = Tekken(tokens, 320, 20);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string json = good;
    return json.replace(json.find(from), from.size(), to);
  };
  EXPECT_TRUE(Make(good).ok()) << Error(good);
  EXPECT_THAT(Error(Tekken(tokens, 321, 20)), HasSubstr("f: vocab: expected at least 301 tokens"));
  EXPECT_THAT(Error(Tekken(tokens, 10, 20)), HasSubstr("f: config.default_num_special_tokens"));
  EXPECT_THAT(Error(Tekken(tokens, 320, 20, "", "v99")), HasSubstr("config.version: \"v99\""));
  EXPECT_THAT(Error(Tekken(tokens, 320, 20, "", "v11")), HasSubstr("f: special_tokens"));
  EXPECT_THAT(Error(Tekken(twice, 320, 20)), HasSubstr("rank 270, \"ab\", also has rank 257"));
  EXPECT_THAT(Error(Tekken(gone, 320, 20)), HasSubstr("no token for the byte 0x07"));
  EXPECT_THAT(Error(with("\"rank\": 9,", "\"rank\": 8,")), HasSubstr("f: vocab[9].rank"));
  EXPECT_THAT(Error(with("\"rank\": 9,", "")), HasSubstr("f: vocab[9].rank"));
  EXPECT_THAT(Error(with("\"Cg==\"", "\"C\"")), HasSubstr("f: vocab[10].token_bytes"));
  EXPECT_THAT(Error(with("\"Cg==\"", "10")), HasSubstr("f: vocab[10].token_bytes"));
  EXPECT_THAT(Error(with("[a-z]+", "[a-z")), HasSubstr("pattern"));
  EXPECT_THAT(Error(with("\"pattern\"", "\"patron\"")), HasSubstr("\"patron\""));
  const auto special = [&](const std::string& list) {
    return Error(Tekken(tokens, 320, 20, "\"special_tokens\": [" + list + "],"));
  };
  EXPECT_EQ(special(R"({"rank": 3, "token_str": "<x>", "is_control": true})"), "ok");
  EXPECT_THAT(special(R"({"rank": 20, "token_str": "<x>"})"), HasSubstr("special_tokens[0].rank"));
  EXPECT_THAT(special(R"({"rank": 1, "token_str": "x"}, {"rank": 1, "token_str": "y"})"),
              HasSubstr("special_tokens[1].rank"));
  EXPECT_THAT(special(R"({"rank": 1, "token_str": "x"}, {"rank": 2, "token_str": "x"})"),
              HasSubstr("\"x\""));
  EXPECT_THAT(special(R"({"rank": 1, "token_str": ""})"), HasSubstr("special_tokens[0].token_str"));
}

TEST(Tiktoken, AFamilyIsKnownByItsTokensOrByTheNameOfItsClass) {
  const std::string ranks = Ranks(Tokens(163'584));
  const auto made = Make(ranks, kKimi);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  const Tokenizer& tokenizer = **made;
  EXPECT_EQ(tokenizer.vocab_size(), 163'840);
  EXPECT_EQ(tokenizer.TokenPiece(163'584), "[BOS]");
  EXPECT_EQ(tokenizer.TokenPiece(163'839), "<|reserved_token_163839|>");
  EXPECT_EQ(tokenizer.special().eos, 163'585);
  EXPECT_FALSE(tokenizer.adds_bos());
  EXPECT_THAT(*tokenizer.Encode("aabc"), ElementsAre('a', 258));
  // The number of tokens is Llama 3's, but the tokens differ: how text is split is unknown.
  EXPECT_THAT(Error(Ranks(Tokens(128'000))), HasSubstr("no known family"));
  EXPECT_THAT(Error(Ranks(Tokens(300)), kKimi), HasSubstr("no known family"));
  EXPECT_THAT(Error(ranks), HasSubstr("no known family"));
}

TEST(Tiktoken, RefusesMalformedFilesByLine) {
  EXPECT_THAT(Error("IQ== 0\nIg== x\n"), HasSubstr("f: line 2: \"Ig== x\""));
  EXPECT_THAT(Error("IQ== 0\nI 1\n"), HasSubstr("f: line 2"));
  EXPECT_THAT(Error("IQ== 0\nIg== -1\n"), HasSubstr("f: line 2"));
  EXPECT_THAT(Error("IQ== 0\nIg== 0\n"), HasSubstr("f: line 2: the rank 0 appears twice"));
  EXPECT_THAT(Error("IQ== 0\nIg== 99999999999999999999\n"), HasSubstr("f: line 2"));
  EXPECT_THAT(Error("IQ== 0\nIg== 4000000\n"), HasSubstr("the rank is 4000000 in a file of 3"));
  EXPECT_THAT(Error("IQ== 0\n\n\n\r\nIg== 2\n"),
              HasSubstr("rank 1 is missing, but there is a rank 2"));
  std::vector<std::string> twice = Tokens(163'584);
  twice[400] = "abc";
  EXPECT_THAT(Error(Ranks(twice), kKimi), HasSubstr("rank 400, \"abc\", also has rank 258"));
}

TEST(TokenizerFile, FormatDoesNotDependOnTheName) {
  const auto error = [](std::string_view bytes) {
    return ParseTokenizerFile(bytes, "tokenizer.model").status().ToString();
  };
  EXPECT_THAT(error(""), HasSubstr("tokenizer.model: is not a tokenizer.json"));
  EXPECT_THAT(error("hello"), HasSubstr("is not a tokenizer.json"));
  EXPECT_THAT(error("version https://git-lfs.github.com/spec/v1\n"),
              HasSubstr("is not a tokenizer.json"));
  EXPECT_THAT(error("{}"), HasSubstr("tokenizer.model: model"));
  EXPECT_THAT(error(" {\"default_num_special_tokens\": 1}"), HasSubstr("tokenizer.model: config"));
  EXPECT_THAT(error("\x0A\x05\x0A\x03"
                    "abc"),
              HasSubstr("no unknown token"));
  EXPECT_THAT(error("IQ== 0\n"), HasSubstr("family"));
}

}  // namespace
}  // namespace tokamak
