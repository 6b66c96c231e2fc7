// Compares SentencePiece models with the results of its own library for the same files
// (tests/golden/make_sentencepiece_models.py), and tests what is refused.
#include "tokenizer/sentencepiece_model.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include <fstream>

#include "base/file.h"
#include "tokenizer/proto_reader.h"
#include "tokenizer/testing/test_strings.h"
#include "tokenizer/tokenizer.h"

namespace tokamak {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kFolder = std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/sentencepiece/";
constexpr uint64_t kMaxBytes = 16 << 20;

Result<std::shared_ptr<const Tokenizer>> Make(std::string_view bytes) {
  Result<VocabSpec> vocab = ParseSentencePieceModel(bytes, "t.model");
  if (!vocab.ok()) return vocab.status();
  return Tokenizer::Create(*std::move(vocab));
}

TEST(SentencePieceModel, EverySettingGivesTheIdsAndTheTextOfTheReference) {
  std::ifstream goldens(kFolder + "ids.txt");
  ASSERT_TRUE(goldens.good());
  std::string name;
  int count = 0, sections = 0;
  while (goldens >> name >> count) {
    ++sections;
    const auto tokenizer = Make(ReadWholeFile(kFolder + name + ".model", kMaxBytes).value());
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status().ToString();
    int ids_differ = 0, texts_differ = 0, first = -1;
    for (int i = 0; i < count; ++i) {
      uint32_t ids_hash = 0, text_hash = 0;
      goldens >> std::hex >> ids_hash >> text_hash >> std::dec;
      const auto ids =
          (*tokenizer)
              ->Encode(testing::TestString(static_cast<uint64_t>(i)), {.add_special = false});
      ASSERT_TRUE(ids.ok()) << name << " " << i << ": " << ids.status().ToString();
      const std::string_view bytes(reinterpret_cast<const char*>(ids->data()), 4 * ids->size());
      const bool good = testing::Fnv32(bytes) == ids_hash;
      const bool good_text =
          !good || text_hash == 0 || testing::Fnv32(*(*tokenizer)->Decode(*ids)) == text_hash;
      ids_differ += !good;
      texts_differ += !good_text;
      if (first < 0 && !(good && good_text)) first = i;
    }
    EXPECT_EQ(ids_differ + texts_differ, 0)
        << name << ": ids of " << ids_differ << " strings, texts of " << texts_differ
        << "; the first is string " << first;
  }
  EXPECT_EQ(sections, 11);
}

std::string Varint(uint64_t value) {
  std::string out;
  for (; value > 127; value >>= 7) out += static_cast<char>(value | 128);
  return out + static_cast<char>(value);
}
std::string Message(int field, const std::string& bytes) {
  return Varint(static_cast<uint64_t>(field) << 3 | 2) + Varint(bytes.size()) + bytes;
}
std::string Number(int field, uint64_t value) {
  return Varint(static_cast<uint64_t>(field) << 3) + Varint(value);
}
// A piece whose score is 1.0 minus its number of bytes.
std::string Piece(const std::string& text, int type = 1) {
  const float score = 1.0f - static_cast<float>(text.size());
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &score, 4);
  return Message(1, Message(1, text) + "\x15" + bytes + Number(3, static_cast<uint64_t>(type)));
}
std::string Trainer(const std::string& fields = Number(3, 2)) { return Message(2, fields); }

// <unk>, <s>, </s>, a, b, ab, ▁.
std::string Small() {
  return Piece("<unk>", 2) + Piece("<s>", 3) + Piece("</s>", 3) + Piece("a") + Piece("b") +
         Piece("ab") + Piece("\xE2\x96\x81");
}

TEST(SentencePieceModel, ControlTokensInTextAreTextUnlessTheCallerAllowsThem) {
  const auto made = Make(Small() + Trainer());
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  const Tokenizer& tokenizer = **made;
  EXPECT_EQ(tokenizer.special().bos, 1);
  EXPECT_EQ(tokenizer.special().eos, 2);
  EXPECT_THAT(*tokenizer.Encode("ab</s>", {.add_special = false, .parse_special = true}),
              ElementsAre(6, 5, 2));
  EXPECT_THAT(*tokenizer.Encode("ab</s>", {.add_special = false}), ElementsAre(6, 5, 0));
  EXPECT_EQ(*tokenizer.Decode(std::vector<int32_t>{1, 6, 5, 2}), "ab");
}

TEST(SentencePieceModel, RefusesMalformedModelsByFileAndField) {
  const std::string small = Small(), nan("\x15\x00\x00\xC0\x7F", 5);
  std::string bytes;
  for (int i = 0; i < 255; ++i) bytes += Piece(fmt::format("<0x{:02X}>", i), 6);
  const struct {
    std::string model;
    const char* expected;
  } cases[] = {
      {"", "t.model: pieces: the model has no pieces"},
      {Trainer(), "pieces: the model has no pieces"},
      {small, ""},  // Unigram is the default
      {small + Trainer(), ""},
      {small + Trainer(Number(3, 3)), "model_type: the type WORD"},
      {small + Trainer(Number(3, 4)), "model_type: the type CHAR"},
      {small + Trainer(Number(3, 9)), "model_type"},
      {small + Trainer(Message(3, "x")), "trainer_spec.model_type: has the wrong type"},
      {small + Piece("a"), "pieces[7].piece: \"a\" appears twice"},
      {small + Piece("<s>", 3), "pieces[7].piece: \"<s>\" appears twice"},
      {small + Piece("<unk2>", 2), "pieces[7].type: is a second unknown token"},
      {small + Piece("x", 0), "pieces[7].type: is 0"},
      {small + Piece("x", 7), "pieces[7].type: is 7"},
      {small + Piece(""), "pieces[7].piece: is missing or empty"},
      {small + Piece("\xFF"), "pieces[7].piece: is not valid UTF-8"},
      {small + Piece(std::string(2000, 'x')), "pieces[7].piece: has 2000 bytes"},
      {small + Message(1, Message(1, "x") + nan), "pieces[7].score: is not finite"},
      {small + Message(1, Number(1, 5)), "pieces[7]: a field has the wrong type"},
      {small + Message(1, "\x0A"), "pieces[7]: malformed: it ends inside a number"},
      {small + Message(1, "\x0A\x7Fx"), "pieces[7]: malformed: a field is longer"},
      {small + Piece("<0x00>", 6), "byte_fallback is false"},
      {small + Piece("<0xZZ>", 6) + Trainer(Number(3, 2) + Number(35, 1)), "is not a byte"},
      {small + bytes + Trainer(Number(3, 2) + Number(35, 1)), "<0xFF> is missing"},
      {Piece("a"), "there is no unknown token"},
      {small + Message(3, Number(9, 1)), "field 9 of normalizer_spec is not supported"},
      {small + Message(3, Message(3, "x")), "normalizer_spec.add_dummy_prefix"},
      {small + Message(3, Message(2, "abc")), "charsmap"},
      {small + Message(5, Message(2, "abc")), "denormalizer_spec"},
      {small + Message(9, ""), "field 9 of the model"},
      {small + "\x0A", "malformed at byte"},
      {small + "\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01",
       "a field is longer than what follows"},
      {small + std::string(11, '\xFF'), "more than 64 bits"},
      {small + "\x0B", "an unused wire type"},
      {small + std::string("\x02\x00", 2), "no valid number"},
      {small + "\x15\x01", "it ends inside a number"},
  };
  for (size_t i = 0; i < std::size(cases); ++i) {
    const auto made = Make(cases[i].model);
    if (*cases[i].expected == '\0') {
      EXPECT_TRUE(made.ok()) << i << ": " << made.status().ToString();
      continue;
    }
    ASSERT_FALSE(made.ok()) << i << ": " << cases[i].expected;
    EXPECT_THAT(made.status().ToString(), HasSubstr(cases[i].expected)) << i;
  }
}

TEST(SentencePieceModel, EveryTruncationIsRefusedOrASmallerModel) {
  const std::string whole = ReadWholeFile(kFolder + "bpe_merged.model", kMaxBytes).value();
  int refused = 0;
  for (size_t size = 0; size < whole.size(); size += 1 + size / 50) {
    const auto made = Make(std::string_view(whole).substr(0, size));
    refused += !made.ok();
    if (!made.ok()) continue;
    EXPECT_TRUE((*made)->Encode("the cat").ok()) << size;
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace tokamak
