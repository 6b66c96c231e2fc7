// Masks of llguidance over a real vocabulary (tests/golden/make_mask_goldens.py).
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json/json_value.h"
#include "base/testing/refs.h"
#include "grammar/grammar.h"
#include "tokenizer/load/open_tokenizer.h"
#include "tokenizer/testing/test_strings.h"

namespace tokamak {
namespace {

// The exceptions that the script lists: in strings llguidance allows fewer escapes than RFC 8259,
// and no U+007F; padding ("[PAD151646]") is text here.
bool IsExplained(std::string_view token) {
  return token.find("\\u") != std::string_view::npos ||
         token.find("\\/") != std::string_view::npos ||
         token.find('\x7f') != std::string_view::npos || token.ends_with('\\') ||
         token.starts_with("[PAD");
}

struct Masks {
  std::shared_ptr<const Vocabulary> vocabulary;
  std::vector<int32_t> explained;

  explicit Masks(const Tokenizer& tokenizer) {
    std::vector<std::string> text;
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      text.emplace_back(tokenizer.IsSpecial(id) ? "" : tokenizer.TokenPiece(id));
      if (IsExplained(text.back())) explained.push_back(id);
    }
    vocabulary = Vocabulary::Make(text);
  }

  // The number of allowed tokens and the hash of the mask, without the exceptions.
  std::pair<int64_t, int64_t> Of(Matcher& matcher) const {
    std::vector<uint32_t> mask((vocabulary->size() + 31) / 32);
    const Status status = matcher.FillMask(mask);
    EXPECT_TRUE(status.ok() || matcher.complete()) << status.ToString();
    for (const int32_t id : explained) {
      mask[static_cast<size_t>(id) / 32] &= ~(uint32_t{1} << id % 32);
    }
    int64_t count = 0;
    for (const uint32_t word : mask) count += std::popcount(word);
    const std::string_view bytes(reinterpret_cast<const char*>(mask.data()),
                                 (vocabulary->size() + 7) / 8);
    return {count, testing::Fnv32(bytes)};
  }
};

TEST(MaskGolden, MasksAreThoseOfLlguidance) {
  const auto path = testing::FindRef("llama.cpp/models/ggml-vocab-qwen2.gguf");
  SKIP_WITHOUT(path);
  const auto tokenizer = OpenTokenizer(*path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  const Masks masks(**tokenizer);
  const auto text = ReadWholeFile(TOKAMAK_SOURCE_DIR "/tests/golden/grammar/masks.json", 1 << 24);
  ASSERT_TRUE(text.ok());
  const std::optional<JsonValue> golden = JsonValue::Parse(*text, {});
  ASSERT_TRUE(golden);
  size_t compared = 0, explained = 0;
  for (const JsonValue& answer : *golden->Find("answers")->AsArray()) {
    GrammarSpec spec{.kind = GrammarSpec::Kind::kJsonSchema,
                     .text = *answer.Find("schema")->AsString(),
                     .whitespace = GrammarSpec::Whitespace::kPattern,
                     .whitespace_pattern = *golden->Find("whitespace")->AsString()};
    const auto grammar = CompileGrammar(spec);
    ASSERT_TRUE(grammar.ok()) << grammar.status().ToString();
    Matcher matcher(*grammar, masks.vocabulary);
    std::string so_far;
    const JsonValue::Array& tokens = *answer.Find("tokens")->AsArray();
    const JsonValue::Array& expected = *answer.Find("masks")->AsArray();
    ASSERT_EQ(tokens.size(), expected.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (const JsonValue::Array* pair = expected[i].AsArray()) {
        const auto [count, hash] = masks.Of(matcher);
        EXPECT_EQ(count, *(*pair)[0].AsInt()) << spec.text << " after " << so_far;
        EXPECT_EQ(hash, *(*pair)[1].AsInt()) << spec.text << " after " << so_far;
        ++compared;
      } else {
        ++explained;  // a reason why the masks differ
      }
      const auto token = static_cast<int32_t>(*tokens[i].AsInt());
      so_far += (*tokenizer)->TokenPiece(token);
      ASSERT_TRUE(matcher.Accept(token)) << spec.text << " after " << so_far;
    }
  }
  EXPECT_GT(compared, 500u);
  EXPECT_LT(explained, 10u);
}

}  // namespace
}  // namespace tokamak
