// Compares tokenizers from tokenizer.json with the results of Hugging Face's library for the same
// files (tests/golden/make_tokenizer_json.py), and tests what is refused.
#include "tokenizer/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/file.h"
#include "base/utf8.h"
#include "tokenizer/regex.h"
#include "tokenizer/testing/test_strings.h"
#include "tokenizer/tokenizer.h"

namespace tokamak {
namespace {

using ::testing::HasSubstr;

const std::string kFolder = std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/tokenizer_json/";
constexpr uint64_t kMaxBytes = 16 << 20;

std::shared_ptr<const Tokenizer> Open(const std::string& name) {
  Result<VocabSpec> vocab =
      ParseTokenizerJson(ReadWholeFile(kFolder + name + ".json", kMaxBytes).value(), name);
  EXPECT_TRUE(vocab.ok()) << vocab.status().ToString();
  if (!vocab.ok()) return nullptr;
  auto tokenizer = Tokenizer::Create(*std::move(vocab));
  EXPECT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status().ToString();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

TEST(TokenizerJson, EveryComponentGivesTheIdsAndTheTextOfTheReference) {
  std::ifstream goldens(kFolder + "ids.txt");
  ASSERT_TRUE(goldens.good());
  std::string name;
  int count = 0, sections = 0;
  while (goldens >> name >> count) {
    ++sections;
    const auto tokenizer = Open(name);
    int ids_differ = 0, plain_differ = 0, text_differs = 0, first = -1;
    for (int i = 0; i < count; ++i) {
      uint32_t with_special = 0, plain = 0, text = 0;
      goldens >> std::hex >> with_special >> plain >> text >> std::dec;
      if (tokenizer == nullptr) continue;
      const std::string input = testing::TestString(static_cast<uint64_t>(i));
      const auto ids = tokenizer->Encode(input, {.add_special = true, .parse_special = true});
      const auto bare = tokenizer->Encode(input, {.add_special = false, .parse_special = false});
      ASSERT_TRUE(ids.ok()) << name << " " << i << ": " << ids.status().ToString();
      ASSERT_TRUE(bare.ok());
      const bool good = testing::Fnv32(*ids) == with_special;
      const bool good_plain = plain == 0 || testing::Fnv32(*bare) == plain;
      const bool good_text = !good || testing::Fnv32(*tokenizer->Decode(*ids)) == text;
      ids_differ += !good;
      plain_differ += !good_plain;
      text_differs += !good_text;
      if (first < 0 && !(good && good_plain && good_text)) first = i;
    }
    EXPECT_EQ(ids_differ + plain_differ + text_differs, 0)
        << name << ": ids of " << ids_differ << " strings, " << plain_differ
        << " without special tokens, texts of " << text_differs << "; the first is string "
        << first;
  }
  EXPECT_GE(sections, 20);
}

// A small file with one component replaced.
std::string With(const std::string& field, const std::string& value) {
  std::string json = R"({"version": "1.0", "added_tokens": [], "normalizer": null,
    "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}})";
  const size_t at = json.find("\"" + field + "\": ") + field.size() + 4;
  const bool list = json[at] == '[', model = json[at] == '{';
  const size_t end = list ? json.find(']', at) + 1 : model ? json.size() - 1 : json.find(',', at);
  return json.replace(at, end - at, value);
}

Status Error(const std::string& json) {
  Result<VocabSpec> vocab = ParseTokenizerJson(json, "t.json");
  if (!vocab.ok()) return vocab.status();
  return Tokenizer::Create(*std::move(vocab)).status();
}

TEST(TokenizerJson, RefusesUnknownSettingsByName) {
  EXPECT_TRUE(Error(With("normalizer", "null")).ok())
      << Error(With("normalizer", "null")).ToString();
  const struct {
    const char *field, *value, *expected;
  } cases[] = {
      {"normalizer", R"({"type": "Rot13"})", "t.json: normalizer.type: \"Rot13\""},
      {"normalizer", R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "X"}]})",
       "normalizer.normalizers[1].type: \"X\""},
      {"normalizer", R"({"type": "NFC", "strength": 2})", "\"strength\""},
      {"normalizer", R"({"type": "Replace", "pattern": {"Regex": "("}, "content": ""})", "\"(\""},
      {"normalizer", R"({"type": "Strip", "strip_left": 1, "strip_right": true})", "strip_left"},
      {"pre_tokenizer", R"({"type": "UnicodeScripts"})", "pre_tokenizer.type"},
      {"pre_tokenizer", R"({"type": "Split", "pattern": {"String": " "}, "behavior": "Odd"})",
       "\"Odd\""},
      {"pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "maybe"})",
       "\"maybe\""},
      {"pre_tokenizer", R"({"type": "Metaspace", "replacement": "__"})", "one character"},
      {"pre_tokenizer", "{}", "pre_tokenizer.type"},
      {"pre_tokenizer", "[]", "pre_tokenizer"},
      {"post_processor", R"({"type": "Other"})", "post_processor.type"},
      {"post_processor", R"({"type": "TemplateProcessing", "single": [], "special_tokens": {}})",
       "a place for the text"},
      {"post_processor", R"({"type": "BertProcessing", "sep": ["x", 99], "cls": ["y", 0]})",
       "ids of tokens"},
      {"decoder", R"({"type": "CTC"})", "decoder.type: \"CTC\""},
      {"decoder", R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteLevel"}]})",
       "after Fuse"},
      {"model", R"({"type": "WordLevel", "vocab": {}})", "model.type: \"WordLevel\""},
      {"model", R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"]})", "merge 0"},
      {"model", R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a a a"]})", "merges[0]"},
      {"model", R"({"type": "BPE", "vocab": {"a": -1}, "merges": []})", "usable id"},
      {"model", R"({"type": "BPE", "vocab": {"a": 9000000}, "merges": []})", "large gap"},
      {"model", R"({"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []})", "id 0"},
      {"model", R"({"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.1})", "dropout"},
      {"model", R"({"type": "Unigram", "vocab": [["a", 0.5], ["b"]], "unk_id": 0})", "vocab[1]"},
      {"model", R"({"type": "Unigram", "vocab": [["a", 0.5]], "unk_id": 7})", "unk_id"},
      {"model", R"({"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "[UNK]"})", "unk_token"},
      {"added_tokens", R"([{"id": 1, "content": "x", "special": true}])", "another token"},
      {"added_tokens", R"([{"id": 3, "content": "x", "colour": "red"}])", "\"colour\""},
      {"version", R"("1.0", "extra": 1)", "\"extra\""},
  };
  for (const auto& bad : cases) {
    const Status status = Error(With(bad.field, bad.value));
    EXPECT_FALSE(status.ok()) << bad.field << " " << bad.value;
    EXPECT_THAT(status.ToString(), HasSubstr(bad.expected)) << bad.field << " " << bad.value;
  }
  EXPECT_FALSE(Error("").ok());
  EXPECT_FALSE(Error("[]").ok());
  EXPECT_FALSE(Error("{").ok());
  EXPECT_FALSE(Error(std::string(1 << 20, '[')).ok());
}

TEST(Regex, OnigurumaSyntaxRunsOnPcre2) {
  const auto matches = [](std::string_view pattern, std::string_view text) {
    Result<Regex> regex = Regex::Compile(pattern);
    EXPECT_TRUE(regex.ok()) << regex.status().ToString();
    std::string out;
    if (!regex.ok()) return out;
    RegexScratch scratch;
    const Status status = regex->FindAll(text, scratch, [&](size_t begin, size_t end) {
      out += "(" + std::string(text.substr(begin, end - begin)) + ")";
    });
    EXPECT_TRUE(status.ok());
    return out;
  };
  EXPECT_EQ(matches("\\s+", "a\u3000 b\u180ec"), "(\u3000 )");
  EXPECT_EQ(matches("[^\\s\\d]+", "ab 1٣c"), "(ab)(c)");
  EXPECT_EQ(matches("[\\p{L}&&[^\\p{Han}]]+", "ab中c"), "(ab)(c)");
  EXPECT_EQ(matches("[a-z&&[^m-o]]+", "kmlp"), "(k)(lp)");
  EXPECT_EQ(matches("[a[bc]]+", "abcd"), "(abc)");
  EXPECT_EQ(matches("(?=\\d)", "a12"), "()()");
  EXPECT_EQ(matches("b*", "abb"), "()(bb)");
  EXPECT_EQ(matches("\\h+", "xfFg"), "(fF)");
  // Digits and letters of Unicode 16.
  EXPECT_EQ(matches("\\p{N}+", "a\U0001E5F1\U00010D40b"), "(\U0001E5F1\U00010D40)");
  EXPECT_EQ(matches("[^\\s\\p{L}]+", "-\U00010D70\U00016D40-"), "(-)(-)");
  EXPECT_EQ(matches("\\P{L}+", "-\U00010D70-"), "(-)(-)");
  EXPECT_EQ(matches("^a$", "a\na"), "(a)(a)");
  EXPECT_EQ(matches("\\p{^L}+|[\\]x]", "a1]x"), "(1])(x)");
  EXPECT_FALSE(Regex::Compile("[a").ok());
  EXPECT_FALSE(Regex::Compile("\\").ok());
  EXPECT_FALSE(Regex::Compile("(").ok());
  EXPECT_FALSE(Regex::Compile("\\p{Nonsense}").ok());
}

TEST(Regex, AMatchThatNeedsMoreStackGetsIt) {
  const Result<Regex> regex = Regex::Compile("(?:(a)|b)+");
  ASSERT_TRUE(regex.ok());
  std::string text;
  while (text.size() < 40000) text += "ab";
  RegexScratch scratch;
  size_t matched = 0;
  const auto measure = [&](size_t begin, size_t end) { matched = end - begin; };
  EXPECT_TRUE(regex->FindAll(text, scratch, measure).ok());
  EXPECT_EQ(matched, text.size());
}

TEST(Regex, APatternThatTakesForeverIsStopped) {
  const Result<Regex> regex = Regex::Compile("(a+)+$b");
  ASSERT_TRUE(regex.ok());
  RegexScratch scratch;
  const Status status = regex->FindAll(std::string(64, 'a') + "c", scratch, [](size_t, size_t) {});
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tokamak
