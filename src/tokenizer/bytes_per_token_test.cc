#include "tokenizer/bytes_per_token.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "base/utf8.h"
#include "tokenizer/testing/test_strings.h"
#include "tokenizer/testing/tiny_vocabs.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/unicode.h"

namespace tokamak {
namespace {

const std::string kGoldens = std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/";

std::string Repeat(std::string_view text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

// Texts with as few tokens as possible: each token's own text, white space, text that normalizers
// shorten, and text that no vocabulary knows.
std::vector<std::string> DenseTexts(const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    texts.push_back(Repeat(tokenizer.TokenPiece(id), 40));
  }
  for (const char* text :
       {" ", "\n", "\t", "\xE2\x96\x81", "\xCE\xB9\xCC\x88\xCC\x81", "A\xCC\x8A", "e\xCC\x81",
        "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xE2\x84\xAB", "\xEF\xAC\x83", "\xF0\x9F\x98\x80",
        "\xF3\xA0\x81\xB6", "\xFF", "\xEF\xBF\xBD", "\x01", "<mask>   ", "  <s>  ", "a  "}) {
    texts.push_back(Repeat(text, 500));
    texts.push_back("a" + Repeat(text, 500) + "a");
  }
  return texts;
}

// Returns whether there is a bound.
bool CheckBound(const std::string& name, const VocabSpec& spec) {
  const auto tokenizer = Tokenizer::Create(spec);
  EXPECT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status().ToString();
  if (!tokenizer.ok()) return false;
  std::vector<std::string> texts = DenseTexts(**tokenizer);
  for (uint64_t i = 0; i < 1000; ++i) texts.push_back(testing::TestString(i));
  bool bounded = false;
  for (const std::string& text : texts) {
    const size_t least = (*tokenizer)->LeastTokens(text);
    bounded = bounded || least > 0;
    for (const bool parse_special : {false, true}) {
      const auto ids =
          (*tokenizer)->Encode(text, {.add_special = false, .parse_special = parse_special});
      EXPECT_TRUE(ids.ok());
      if (ids.ok()) {
        EXPECT_LE(least, ids->size()) << name << ": " << text.substr(0, 100);
      }
    }
  }
  return bounded;
}

TEST(BytesPerToken, NoTextHasFewerTokensThanItsLengthSays) {
  int bounded = 0;
  for (const GgufVocab& vocab : testing::AllTinyVocabs()) {
    bounded += CheckBound("tiny", *MakeGgufVocab(vocab));
  }
  EXPECT_GE(bounded, 2);
  for (const char* folder : {"tokenizer_json", "sentencepiece"}) {
    bounded = 0;
    for (const auto& entry : std::filesystem::directory_iterator(kGoldens + folder)) {
      if (entry.path().extension() == ".txt") continue;
      const std::string name = entry.path().filename();
      const auto file = ReadWholeFile(entry.path().string(), uint64_t{16} << 20);
      ASSERT_TRUE(file.ok()) << file.status().ToString();
      const auto spec = ParseTokenizerFile(*file, name, "");
      ASSERT_TRUE(spec.ok()) << name << ": " << spec.status().ToString();
      bounded += CheckBound(name, *spec);
    }
    EXPECT_GE(bounded, 1) << folder;
  }
}

size_t LeastOfBytes(const GgufVocab& vocab, const std::string& text) {
  const auto tokenizer = testing::MakeTokenizer(vocab);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return tokenizer.ok() ? (*tokenizer)->LeastTokens(text) : SIZE_MAX;
}

TEST(BytesPerToken, DividesByTheLongestSpelling) {
  GgufVocab spec = testing::TinyBytePairs();
  spec.tokens.push_back(std::string(99, 'x'));
  if (!spec.types.empty()) spec.types.push_back(TokenType::kNormal);
  if (!spec.scores.empty()) spec.scores.push_back(0);
  EXPECT_EQ(LeastOfBytes(spec, ""), 0u);
  EXPECT_EQ(LeastOfBytes(spec, std::string(99, ' ')), 1u);
  EXPECT_EQ(LeastOfBytes(spec, std::string(100, ' ')), 2u);
  EXPECT_EQ(LeastOfBytes(spec, std::string(9900, 'a')), 100u);
}

TEST(BytesPerToken, CountsNoCharactersThatNormalizationRemoves) {
  const std::string text(100'000, 'a');
  EXPECT_EQ(LeastOfBytes(testing::TinyUnigram(), text), 0u);
  EXPECT_EQ(LeastOfBytes(testing::TinyWordPiece(), text), 0u);
  GgufVocab spec = testing::TinyBytePairs();
  EXPECT_GT(LeastOfBytes(spec, text), 0u);
  spec.lstrip_tokens = {spec.special.eos};
  EXPECT_EQ(LeastOfBytes(spec, text), 0u);
  spec.lstrip_tokens = {};
  spec.rstrip_tokens = {spec.special.eos};
  EXPECT_EQ(LeastOfBytes(spec, text), 0u);
  // A byte without a token is dropped from texts; the others still count.
  spec = testing::TinyBytePairs();
  for (std::string& token : spec.tokens) {
    if (token == "~") token = "~~~";
  }
  EXPECT_EQ(LeastOfBytes(spec, std::string(100'000, '~')), 0u);
  EXPECT_EQ(LeastOfBytes(spec, text + std::string(100'000, '~')), LeastOfBytes(spec, text));
  EXPECT_TRUE(CheckBound("without ~", *MakeGgufVocab(spec)));
}

// Normalization form C makes no text four times shorter. Tries the decomposition of every
// character, and the character itself if it stands for another one.
TEST(BytesPerToken, NormalizationShortensByLessThanFour) {
  for (uint32_t c = 1; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    AppendCodePoint(c, text);
    const std::string composed = NormalizeNfc(text);
    std::string decomposed;
    for (const char32_t part : NormalizeNfd(text)) AppendCodePoint(part, decomposed);
    ASSERT_LE(text.size(), 4 * composed.size()) << c;
    ASSERT_LE(decomposed.size(), 4 * NormalizeNfc(decomposed).size()) << c;
  }
}

}  // namespace
}  // namespace tokamak
