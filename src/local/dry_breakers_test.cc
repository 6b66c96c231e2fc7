#include "local/dry_breakers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "ops/sampling/slot_sampling.h"
#include "tokenizer/load/open_tokenizer.h"
#include "tokenizer/testing/tiny_vocabs.h"

namespace tokamak {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

template <typename T>
std::vector<T> ReadAll(std::istream& in) {
  return {std::istream_iterator<T>(in), {}};
}

// tests/golden/make_llama_dry_goldens.py: llama.cpp's own breakers and penalties.
TEST(DryBreakers, AndPenaltiesAreThoseOfLlamaCpp) {
  const std::string golden = TOKAMAK_SOURCE_DIR "/tests/golden/";
  const auto tokenizer = OpenTokenizer(golden + "llama_tied.gguf");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  DryBreakerEncoder encoder(*tokenizer);
  std::ifstream file(golden + "llama_dry.txt");
  std::string line, result;
  int cases = 0, penalized = 0;
  while (std::getline(file, line) && std::getline(file, result)) {
    SCOPED_TRACE(line);
    std::istringstream parameters(line);
    SamplingParams params;
    params.dry_sequence_breakers.clear();
    std::string word;
    parameters >> params.dry_multiplier >> params.dry_base >> params.dry_allowed_length >>
        params.dry_penalty_last_n >> word;
    while (parameters >> word && word != ":") {
      params.dry_sequence_breakers.push_back(FromHex(word));
    }
    const auto history = ReadAll<TokenId>(parameters);
    std::vector<float> expected(static_cast<size_t>((*tokenizer)->vocab_size()), 0.0f);
    std::istringstream logits(result);
    for (float logit = 0; logits >> word >> logit;) {
      expected[static_cast<size_t>(std::stoi(word))] = logit;
      ++penalized;
    }
    ASSERT_TRUE(encoder.Encode(&params).ok());
    // A part of the history is the prompt, a part is drawn after the slot is made.
    const std::span<const TokenId> all = history;
    sampling::SlotSampling slot;
    slot.Reset(params, 0, all.first(history.size() / 2), static_cast<int32_t>(history.size() / 3));
    for (const TokenId token : all.subspan(history.size() / 2)) slot.Append(token);
    std::vector<float> row(expected.size(), 0.0f);
    slot.Edit(static_cast<int32_t>(history.size()), row, nullptr);
    for (size_t t = 0; t < row.size(); ++t) {
      ASSERT_NEAR(row[t], expected[t], 1e-6 * (1 - expected[t])) << t;
    }
    ++cases;
  }
  EXPECT_EQ(cases, 300);
  EXPECT_GT(penalized, 400);
}

TEST(DryBreakers, AreTokensThatContainOneOrSpellItTogether) {
  const auto tokenizer = testing::MakeTokenizer(testing::TinyBytePairs()).value();
  DryBreakerEncoder encoder(tokenizer);
  const auto encode = [&](std::vector<std::string> texts) {
    SamplingParams params;
    params.dry_multiplier = 1;
    params.dry_sequence_breakers = std::move(texts);
    EXPECT_TRUE(encoder.Encode(&params).ok());
    EXPECT_TRUE(params.dry_sequence_breakers.empty());
    return params;
  };
  const auto pieces = [&](const std::vector<int32_t>& ids) {
    std::vector<std::string> texts;
    for (const int32_t id : ids) texts.emplace_back(tokenizer->TokenPiece(id));
    return texts;
  };
  const SamplingParams first = encode({"\n", "ca"});
  EXPECT_THAT(pieces(first.dry_breaker_tokens), Contains("\n"));
  EXPECT_THAT(pieces(first.dry_breaker_tokens), Contains("\n\n"));
  EXPECT_THAT(pieces(first.dry_breaker_tokens), Contains("cat"));
  EXPECT_THAT(pieces(first.dry_breaker_tokens), Not(Contains("c")));
  std::vector<std::vector<std::string>> sequences;
  for (const auto& ids : first.dry_breaker_sequences) sequences.push_back(pieces(ids));
  EXPECT_THAT(sequences, Contains(ElementsAre("c", "a")));
  // Others do not replace them, and equal texts get equal tokens.
  EXPECT_NE(encode({"t"}), first);
  EXPECT_EQ(encode({"\n", "ca"}), first);
}

TEST(DryBreakers, NeedATokenizerOnlyIfThereAreTexts) {
  DryBreakerEncoder encoder(nullptr);
  SamplingParams params;
  EXPECT_TRUE(encoder.Encode(&params).ok());  // DRY is off
  params.dry_multiplier = 1;
  EXPECT_TRUE(encoder.Encode(&params).message().starts_with("dry_sequence_breakers: "));
  params.dry_sequence_breakers.clear();
  EXPECT_TRUE(encoder.Encode(&params).ok());
}

}  // namespace
}  // namespace tokamak
