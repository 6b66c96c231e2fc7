#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "base/testing/sanitizers.h"
#include "base/utf8.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/testing/reference.h"
#include "tokenizer/testing/test_strings.h"
#include "tokenizer/testing/tiny_vocabs.h"

namespace tokamak {
namespace {

using testing::AllTinyVocabs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TestString;
using testing::TinyBytePairs;
using testing::TinyCharacterPairs;
using testing::TinySentencePiece;
using testing::TinyUnigram;
using testing::TinyWordPiece;
using Ids = std::vector<int32_t>;

std::shared_ptr<const Tokenizer> Make(GgufVocab spec) {
  auto result = testing::MakeTokenizer(std::move(spec));
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return *result;
}

Ids Encode(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = {}) {
  auto result = tokenizer.Encode(text, options);
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return *result;
}

// The tokens' texts, for readable expectations.
std::vector<std::string> Pieces(const Tokenizer& tokenizer, std::string_view text,
                                EncodeOptions options = {.add_special = false}) {
  std::vector<std::string> out;
  for (const int32_t id : Encode(tokenizer, text, options)) {
    out.emplace_back(tokenizer.TokenPiece(id));
  }
  return out;
}

std::string RandomWord(std::mt19937_64& random, std::string_view alphabet, size_t most) {
  std::string out;
  for (size_t n = 1 + random() % most; n > 0; --n) out += alphabet[random() % alphabet.size()];
  return out;
}

TEST(Tokenizer, BytePairsEqualTheDefinition) {
  const GgufVocab spec = TinyBytePairs();
  const auto tokenizer = Make(spec);
  std::mt19937_64 random(1);
  for (int round = 0; round < 5000; ++round) {
    const std::string word = RandomWord(random, "thencatwlkig", 24);  // only letters: one piece
    ASSERT_EQ(Encode(*tokenizer, word), testing::SlowBytePairs(spec, word)) << word;
  }
}

TEST(Tokenizer, MergesOfManyRanksEqualTheDefinition) {
  std::mt19937_64 random(2);
  for (int vocabulary = 0; vocabulary < 50; ++vocabulary) {
    GgufVocab spec = TinyBytePairs();
    // Random merges over existing parts, so that they nest and compete.
    std::vector<std::string> parts = {"a", "b", "c"};
    spec.merges.clear();
    for (int i = 0; i < 30; ++i) {
      const std::string left = parts[random() % parts.size()];
      const std::string right = parts[random() % parts.size()];
      const std::string joined = left + right;
      spec.merges.push_back(left + " " + right);
      if (std::find(spec.tokens.begin(), spec.tokens.end(), joined) == spec.tokens.end()) {
        spec.tokens.push_back(joined);
        spec.types.push_back(TokenType::kNormal);
        spec.scores.push_back(0);
      }
      if (joined.size() < 8) parts.push_back(joined);
    }
    const auto tokenizer = Make(spec);
    for (int round = 0; round < 60; ++round) {
      const std::string word = RandomWord(random, "abc", 40);
      const Ids expected = testing::SlowBytePairs(spec, word);
      ASSERT_EQ(Encode(*tokenizer, word), expected) << word << " in vocabulary " << vocabulary;
      // Again: now a word that is a token takes the shortcut.
      ASSERT_EQ(Encode(*tokenizer, word), expected) << word << " in vocabulary " << vocabulary;
    }
  }
}

TEST(Tokenizer, MergesMayNameStringsThatAreNotTokens) {
  GgufVocab spec = TinyBytePairs();
  spec.merges.insert(spec.merges.end(), {"x y", "xy z"});
  spec.tokens.push_back("xyz");
  spec.types.push_back(TokenType::kNormal);
  spec.scores.push_back(0);
  const auto tokenizer = Make(spec);
  EXPECT_THAT(Pieces(*tokenizer, "axyza"), ElementsAre("a", "xyz", "a"));
  EXPECT_THAT(Pieces(*tokenizer, "axya"), ElementsAre("a", "x", "y", "a"));
}

TEST(Tokenizer, SentencePieceEqualsTheDefinition) {
  GgufVocab spec = TinySentencePiece();
  spec.add_space_prefix = false;
  const auto tokenizer = Make(spec);
  std::mt19937_64 random(3);
  for (int round = 0; round < 3000; ++round) {
    const std::string word = RandomWord(random, "thencatwlkig12'sx", 30);
    ASSERT_EQ(Encode(*tokenizer, word, {.add_special = false}),
              testing::SlowSentencePiece(spec, word))
        << word;
  }
}

TEST(Tokenizer, UnigramFindsTheBestSegmentation) {
  const GgufVocab spec = TinyUnigram();
  const auto tokenizer = Make(spec);
  float lowest = 0;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.types[i] == TokenType::kNormal) lowest = std::min(lowest, spec.scores[i]);
  }
  std::mt19937_64 random(4);
  for (int round = 0; round < 500; ++round) {
    const std::string word = RandomWord(random, "theacfix", 10);
    const std::string escaped = "\u2581" + word;
    // Adjacent unknown characters count once in the ids, so only known pieces are scored.
    if (word.find('x') != std::string::npos) continue;
    double score = 0;
    std::string joined;
    for (const int32_t id : Encode(*tokenizer, word, {.add_special = false})) {
      score += spec.scores[id];
      joined += spec.tokens[id];
    }
    ASSERT_EQ(joined, escaped);
    ASSERT_NEAR(score, testing::BestUnigramScore(spec, escaped, lowest - 10), 1e-6) << word;
  }
}

TEST(Tokenizer, UnigramNormalizesByItsCharsmap) {
  const auto tokenizer = Make(TinyUnigram());
  EXPECT_THAT(Pieces(*tokenizer, "ﬁ\u3000 the"), ElementsAre(" ", "fi", " the"));
  EXPECT_THAT(Pieces(*tokenizer, "  the   cat  "), ElementsAre(" the", " cat"));
  EXPECT_THAT(Pieces(*tokenizer, "xyz t"), ElementsAre(" ", "<unk>", " ", "t"));
  EXPECT_EQ(*tokenizer->Decode(Encode(*tokenizer, "the cat")), "the cat");
}

TEST(Tokenizer, WordPieceSplitsCleansAndLowersText) {
  const auto tokenizer = Make(TinyWordPiece());
  EXPECT_THAT(Pieces(*tokenizer, "The  CATS!"), ElementsAre(" the", " cat", "s", " !"));
  EXPECT_THAT(Pieces(*tokenizer, "càt\u0301 unable"), ElementsAre(" cat", " unable"));
  EXPECT_THAT(Pieces(*tokenizer, "the東the"), ElementsAre(" the", " 東", " the"));
  EXPECT_THAT(Pieces(*tokenizer, "catx the"), ElementsAre("[UNK]", " the"));
  EXPECT_THAT(Pieces(*tokenizer, std::string(101, 'e')), ElementsAre("[UNK]"));
  EXPECT_EQ(Pieces(*tokenizer, std::string(100, 'e')).size(), 100u);
  EXPECT_THAT(Pieces(*tokenizer, "the", {}), ElementsAre("[CLS]", " the", "[SEP]"));
  EXPECT_EQ(*tokenizer->Decode(Encode(*tokenizer, "the cats !")), "the cats !");
}

TEST(Tokenizer, SpecialTokensAreFoundOnRequestAndUserDefinedOnesAlways) {
  const auto tokenizer = Make(TinyBytePairs());
  const EncodeOptions parse = {.add_special = false, .parse_special = true};
  EXPECT_THAT(Pieces(*tokenizer, "the<|im_end|>the", parse),
              ElementsAre("the", "<|im_end|>", "the"));
  EXPECT_EQ(Pieces(*tokenizer, "<|im_end|>").size(), 10u);  // letter by letter
  // The longest of tokens that start at the same place, and only whole tokens.
  EXPECT_THAT(Pieces(*tokenizer, "<tool><call><tool><tool"),
              ElementsAre("<tool><call>", "<tool>", "<", "t", "o", "o", "l"));
  EXPECT_THAT(Pieces(*tokenizer, "<tool><|im_end|>", parse), ElementsAre("<tool>", "<|im_end|>"));
}

TEST(Tokenizer, StrippingTokensIncludeTheWhiteSpaceNextToThem) {
  GgufVocab spec = TinyBytePairs();
  spec.lstrip_tokens = {spec.special.eos};
  spec.rstrip_tokens = {spec.special.bos};
  const auto tokenizer = Make(spec);
  const EncodeOptions parse = {.add_special = false, .parse_special = true};
  EXPECT_THAT(Pieces(*tokenizer, "cat \u3000\n<|im_end|> cat", parse),
              ElementsAre("cat", "<|im_end|>", " ", "cat"));
  EXPECT_THAT(Pieces(*tokenizer, "cat<|begin|> \t\u00A0cat", parse),
              ElementsAre("cat", "<|begin|>", "cat"));
  EXPECT_THAT(Pieces(*tokenizer, " <|begin|>  <|im_end|>", parse),
              ElementsAre(" ", "<|begin|>", "<|im_end|>"));
}

TEST(Tokenizer, RolesComeFromIdsAndNames) {
  GgufVocab spec = TinyBytePairs();
  const int32_t end = static_cast<int32_t>(spec.tokens.size());
  for (const char* name : {"</s>", "<|eom_id|>", "<eos>"}) {
    spec.tokens.push_back(name);
    spec.types.push_back(TokenType::kNormal);
    spec.scores.push_back(0);
  }
  spec.types[end + 2] = TokenType::kControl;
  const int32_t eos = spec.special.eos;
  spec.special.eos = 5;
  const auto tokenizer = Make(spec);
  EXPECT_EQ(tokenizer->special().eot, eos);  // <|im_end|>
  EXPECT_EQ(tokenizer->special().eom, end + 1);
  EXPECT_TRUE(tokenizer->IsSpecial(end + 1));
  // </s> is an ordinary token of this vocabulary; <eos> is special.
  EXPECT_THAT(tokenizer->end_of_generation_ids(), ElementsAre(5, eos, end + 1, end + 2));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(end));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(-1));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(1 << 30));
  EXPECT_EQ(tokenizer->FindToken("<|eom_id|>"), end + 1);
  EXPECT_EQ(tokenizer->FindToken("absent"), -1);
}

// In gpt-oss's checkpoint all of Harmony's marks are control tokens. The ones that structure an
// answer are shown; the ones that end it stop generation and are shown only on request.
TEST(Tokenizer, HarmonyTokensAreShownAndTwoOfThemEndAnAnswer) {
  GgufVocab spec = TinyBytePairs("gpt-4o");
  const auto first = static_cast<int32_t>(spec.tokens.size());
  const std::vector<std::string> marks = {"<|start|>",   "<|end|>",       "<|message|>",
                                          "<|channel|>", "<|constrain|>", "<|return|>",
                                          "<|call|>"};
  Ids ids;
  std::string shown, all;
  for (const std::string& mark : marks) {
    ids.push_back(first + static_cast<int32_t>(ids.size()));
    spec.tokens.push_back(mark);
    spec.types.push_back(TokenType::kControl);
    spec.scores.push_back(0);
    all += mark;
    if (ids.size() <= 5) shown += mark;
  }
  const auto tokenizer = Make(std::move(spec));
  EXPECT_EQ(*tokenizer->Decode(ids), shown);
  EXPECT_EQ(*tokenizer->Decode(ids, {.shown_special = {ids[5], ids[6]}}), all);
  for (size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(tokenizer->IsEndOfGeneration(ids[i]), i >= 5) << marks[i];
}

TEST(Tokenizer, BytePairsDecodeToTheSameText) {
  for (const char* pre : {"smollm", "llama-bpe", "deepseek-v3", "tekken", "kimi-k2", "superbpe"}) {
    const auto tokenizer = Make(TinyBytePairs(pre));
    for (uint64_t i = 0; i < 300; ++i) {
      const std::string text = TestString(i);
      ASSERT_EQ(*tokenizer->Decode(Encode(*tokenizer, text)), ToValidUtf8(text)) << pre << " " << i;
    }
  }
  const auto spaces_escaped = Make(TinyCharacterPairs());
  const auto sentencepiece = Make(TinySentencePiece());
  for (uint64_t i = 0; i < 300; ++i) {
    const std::string text = ToValidUtf8(TestString(i));
    if (text.find("\u2581") != std::string::npos) continue;  // ▁ spells a space
    ASSERT_EQ(*spaces_escaped->Decode(Encode(*spaces_escaped, text)), text) << i;
    ASSERT_EQ(*sentencepiece->Decode(Encode(*sentencepiece, text)), text) << i;
  }
}

TEST(Tokenizer, SentencePieceDropsTheSpaceThatItAdded) {
  const auto tokenizer = Make(TinySentencePiece());
  const Ids ids = Encode(*tokenizer, "the cat");
  EXPECT_EQ(ids[0], tokenizer->special().bos);
  EXPECT_EQ(*tokenizer->Decode(ids), "the cat");
  EXPECT_EQ(*tokenizer->Decode(ids, {.skip_special = false}), "<s> the cat");
  EXPECT_EQ(*tokenizer->Decode(ids, {.continuation = true}), " the cat");
  EXPECT_EQ(*tokenizer->Decode(Encode(*tokenizer, " the")), " the");
  // After a special token, text starts anew.
  EXPECT_THAT(Pieces(*tokenizer, "the</s>the", {.add_special = false, .parse_special = true}),
              ElementsAre(" the", "</s>", " the"));
}

TEST(Tokenizer, InvalidUtf8CountsAsReplacementCharacters) {
  for (const GgufVocab& spec : AllTinyVocabs()) {
    const auto tokenizer = Make(spec);
    for (const char* bytes : {"\xFF", "the\xE2\x82", "\xED\xA0\x80 cat", "\xF0\x9F\x98x"}) {
      EXPECT_EQ(Encode(*tokenizer, bytes), Encode(*tokenizer, ToValidUtf8(bytes)));
    }
    using namespace std::string_view_literals;
    EXPECT_TRUE(tokenizer->Encode("a\0b"sv).ok());
    EXPECT_TRUE(tokenizer->Encode("").ok());
  }
}

TEST(Tokenizer, IncrementalTextIsWholeCharactersAndAddsUpToTheWhole) {
  std::mt19937_64 random(5);
  for (const GgufVocab& spec : AllTinyVocabs()) {
    const auto tokenizer = Make(spec);
    for (int round = 0; round < 400; ++round) {
      Ids ids;
      for (size_t n = random() % 20; n > 0; --n) {
        ids.push_back(static_cast<int32_t>(random() % spec.tokens.size()));
      }
      const DecodeOptions options = {.skip_special = random() % 2 == 0,
                                     .continuation = random() % 2 == 0};
      std::string bytes;  // by definition: join the bytes, then repair them once
      for (const int32_t id : ids) {
        if (options.skip_special && tokenizer->IsSpecial(id)) continue;
        std::string_view piece = tokenizer->TokenPiece(id);
        if (bytes.empty() && !options.continuation && tokenizer->drops_leading_space() &&
            piece.starts_with(' ')) {
          bytes += '\x01';  // records that there was a piece
          piece.remove_prefix(1);
        }
        bytes += piece;
      }
      if (bytes.starts_with('\x01') && tokenizer->drops_leading_space()) bytes.erase(0, 1);
      Detokenizer stream(tokenizer, options);
      std::string text;
      for (const int32_t id : ids) {
        const std::string step = stream.Append(id);
        ASSERT_EQ(ValidUtf8Prefix(step), step.size());
        text += step;
      }
      text += stream.Flush();
      ASSERT_EQ(text, ToValidUtf8(bytes)) << ::testing::PrintToString(ids);
      ASSERT_EQ(text, *tokenizer->Decode(ids, options));
    }
  }
}

TEST(Tokenizer, LongRunsOfOneCharacterAreBoundedForEveryKind) {
  for (const GgufVocab& spec : AllTinyVocabs()) {
    const auto tokenizer = Make(spec);
    for (const std::string unit : {"a", " ", "\n", "東", "the", "\xFF"}) {
      std::string text;
      const size_t size = testing::Fewer<size_t>(unit == "a" ? 1000000 : 100000);
      while (text.size() < size) text += unit;
      EXPECT_TRUE(tokenizer->Encode(text).ok()) << spec.pre_tokenizer << " " << unit;
    }
  }
}

TEST(Tokenizer, ManyThreadsGetTheSameIds) {
  const auto tokenizer = Make(TinyBytePairs());
  std::vector<Ids> expected;
  {
    const auto alone = Make(TinyBytePairs());
    for (uint64_t i = 0; i < 200; ++i) expected.push_back(Encode(*alone, TestString(i)));
  }
  std::vector<std::thread> threads;
  std::atomic<int> different = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (uint64_t i = 0; i < 200; ++i) {
        const auto ids = tokenizer->Encode(TestString(i));
        if (!ids.ok() || *ids != expected[i]) ++different;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(different, 0);
}

TEST(Tokenizer, DescribeGivesTextBytesAndKind) {
  const auto tokenizer = Make(TinyBytePairs());
  const auto described = *tokenizer->Describe(Ids{0xC3, tokenizer->special().eos});
  EXPECT_EQ(described[0].bytes, "\xC3");
  EXPECT_EQ(described[0].text, kReplacementUtf8);
  EXPECT_FALSE(described[0].special);
  EXPECT_EQ(described[1].text, "<|im_end|>");
  EXPECT_TRUE(described[1].special);
  EXPECT_FALSE(tokenizer->Describe(Ids{-1}).ok());
  EXPECT_FALSE(tokenizer->Decode(Ids{1 << 20}).ok());
}

void ExpectRefused(GgufVocab spec, std::string_view what) {
  const auto result = testing::MakeTokenizer(std::move(spec));
  ASSERT_FALSE(result.ok()) << what;
  EXPECT_THAT(std::string(result.status().message()), HasSubstr(std::string(what)));
}

TEST(Tokenizer, RefusesMalformedVocabularies) {
  const auto changed = [](GgufVocab spec, auto change) {
    change(spec);
    return spec;
  };
  ExpectRefused(GgufVocab(), "empty");
  ExpectRefused(TinyBytePairs("no-such"), "unknown pre-tokenizer \"no-such\"");
  ExpectRefused(changed(TinyBytePairs(), [](auto& s) { s.merges.clear(); }), "no merges");
  ExpectRefused(changed(TinyBytePairs(), [](auto& s) { s.merges[3] = "nospace"; }), "merge 3");
  ExpectRefused(changed(TinyBytePairs(), [](auto& s) { s.merges[3] = "a \xFF"; }), "merge 3");
  ExpectRefused(changed(TinyBytePairs(), [](auto& s) { s.tokens[7] = "\xFF"; }), "token 7");
  ExpectRefused(changed(TinyBytePairs(), [](auto& s) { s.types.pop_back(); }), "token types");
  ExpectRefused(changed(TinyBytePairs(), [](auto& s) { s.scores.pop_back(); }), "token scores");
  ExpectRefused(changed(TinyBytePairs(), [](auto& s) { s.special.eos = 100000; }), "eos");
  ExpectRefused(changed(TinyBytePairs(), [](auto& s) { s.special.pad = -2; }), "pad");
  ExpectRefused(changed(TinyBytePairs(),
                        [](auto& s) {
                          s.add_bos = true;
                          s.special.bos = -1;
                        }),
                "bos");
  ExpectRefused(changed(TinyBytePairs(), [](auto& s) { s.tokens.back() = std::string(5000, 'x'); }),
                "special token");
  ExpectRefused(changed(TinyUnigram(), [](auto& s) { s.precompiled_charsmap = "abc"; }),
                "charsmap");
  ExpectRefused(changed(TinyUnigram(), [](auto& s) { s.precompiled_charsmap.pop_back(); }),
                "charsmap");
  ExpectRefused(changed(TinyUnigram(), [](auto& s) { s.scores[3] = NAN; }), "token 3");
  ExpectRefused(changed(TinyUnigram(), [](auto& s) { s.special.unk = -1; }), "unknown token");
  ExpectRefused(changed(TinySentencePiece(), [](auto& s) { s.scores[300] = NAN; }), "token 300");
  ExpectRefused(changed(TinyWordPiece(), [](auto& s) { s.special.unk = -1; }), "unknown token");
}

TEST(Tokenizer, RefusesTextsThatAreTooLong) {
  const auto tokenizer = Make(TinyBytePairs());
  const std::string text(Tokenizer::kMaxTextBytes + 1, 'a');
  EXPECT_EQ(tokenizer->Encode(text).status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tokamak
