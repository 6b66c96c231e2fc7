#include "ops/sampling/slot_sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace tokamak::sampling {
namespace {

// The formulas of sampling_params.h for one token, from the whole history.
float Direct(const SamplingParams& spec, const std::vector<TokenId>& history, int32_t num_prompt,
             TokenId token, float logit) {
  for (const auto& [id, bias] : spec.logit_bias) {
    if (id == token) logit += bias;
  }
  const auto size = static_cast<int32_t>(history.size());
  const int32_t window = spec.repeat_last_n < 0 ? size : std::min(size, spec.repeat_last_n);
  const auto first = history.end() - window;
  const auto output = history.end() - std::min(window, size - num_prompt);
  if (std::count(first, history.end(), token) > 0) {
    logit = logit > 0 ? logit / spec.repetition_penalty : logit * spec.repetition_penalty;
  }
  const auto count = static_cast<float>(std::count(output, history.end(), token));
  if (count > 0) logit -= spec.presence_penalty;
  logit -= spec.frequency_penalty * count;
  const auto generated = static_cast<int32_t>(history.size()) - num_prompt;
  if (generated < spec.min_tokens &&
      std::count(spec.stop_token_ids.begin(), spec.stop_token_ids.end(), token) > 0) {
    logit = -INFINITY;
  }
  const std::vector<TokenId>& allowed = spec.allowed_token_ids;
  if (!allowed.empty() && std::count(allowed.begin(), allowed.end(), token) == 0) return -INFINITY;
  for (const std::vector<TokenId>& word : spec.bad_words_ids) {
    std::vector<TokenId> longer(history.begin() + num_prompt, history.end());
    longer.push_back(token);
    if (longer.size() >= word.size() &&
        std::equal(word.begin(), word.end(), longer.end() - std::ssize(word))) {
      return -INFINITY;
    }
  }
  return logit;
}

TEST(SlotSampling, FollowsTheFormulasWhileTheHistoryGrows) {
  constexpr int32_t kVocab = 40;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  for (int round = 0; round < 200; ++round) {
    SamplingParams spec;
    if (random() % 2) spec.repetition_penalty = 0.5f + static_cast<float>(random() % 100) / 50;
    if (random() % 2) spec.presence_penalty = static_cast<float>(random() % 400) / 100 - 2;
    if (random() % 2) spec.frequency_penalty = static_cast<float>(random() % 400) / 100 - 2;
    if (random() % 2) spec.logit_bias = {{3, 2.5f}, {7, -100.0f}, {3, 1.0f}};
    if (random() % 2) spec.repeat_last_n = static_cast<int32_t>(random() % 15);
    if (random() % 4 == 0) spec.allowed_token_ids = {1, 38, 3};
    if (random() % 2) spec.bad_words_ids = {{7}, {3, 4}, {1, 2, 1}, {2, 1}};
    spec.min_tokens = static_cast<int32_t>(random() % 8);
    spec.stop_token_ids = {0, 3, 39};
    std::vector<TokenId> history;
    for (int i = 0; i < 12; ++i) history.push_back(static_cast<TokenId>(random() % kVocab));
    const int32_t num_prompt = static_cast<int32_t>(random() % 13);  // the rest is resumed output
    SlotSampling slot;
    slot.Reset(spec, 0, history, num_prompt);
    for (int step = 0; step < 10; ++step) {
      std::vector<float> row(kVocab);
      for (float& x : row) x = normal(random);
      std::vector<float> edited = row;
      std::vector<std::pair<TokenId, float>> raw;
      const auto position = static_cast<int32_t>(history.size());
      slot.Edit(position, edited, &raw);
      for (TokenId token = 0; token < kVocab; ++token) {
        const float before = row[static_cast<size_t>(token)];
        const float after = edited[static_cast<size_t>(token)];
        EXPECT_EQ(after, Direct(spec, history, num_prompt, token, before));
        const auto saved = std::find_if(raw.begin(), raw.end(),
                                        [&](const auto& entry) { return entry.first == token; });
        EXPECT_TRUE(after == before || after == -INFINITY || saved != raw.end());
        EXPECT_TRUE(saved == raw.end() || saved->second == before);
      }
      EXPECT_TRUE(edited == row || slot.Edits(position));
      std::vector<TokenId> proposed;
      for (size_t i = random() % 4; i > 0; --i) proposed.push_back(static_cast<TokenId>(i));
      slot.WithTokens(proposed, [&] {
        std::vector<TokenId> longer = history;
        longer.insert(longer.end(), proposed.begin(), proposed.end());
        std::vector<float> further = row;
        slot.Edit(static_cast<int32_t>(longer.size()), further, nullptr);
        for (TokenId token = 0; token < kVocab; ++token) {
          const auto t = static_cast<size_t>(token);
          EXPECT_EQ(further[t], Direct(spec, longer, num_prompt, token, row[t]));
        }
      });
      const auto drawn = static_cast<TokenId>(random() % (random() % 2 == 0 ? kVocab : 5));
      history.push_back(drawn);
      slot.Append(drawn);
    }
  }
}

TEST(SlotSampling, KeepsFiniteLogitsFinite) {
  constexpr float kMax = std::numeric_limits<float>::max();
  SamplingParams spec;
  spec.repetition_penalty = 1e-30f;
  spec.frequency_penalty = 2;
  spec.logit_bias = {{0, 100.0f}};
  SlotSampling slot;
  slot.Reset(spec, 0, std::vector<TokenId>{0, 1, 2}, 0);
  std::vector<float> row = {kMax, 1e20f, -INFINITY, -kMax};
  slot.Edit(3, row, nullptr);
  EXPECT_EQ(row, (std::vector<float>{kMax, kMax, -INFINITY, -kMax}));
  spec.repetition_penalty = 1e30f;
  slot.Reset(spec, 0, std::vector<TokenId>{3}, 0);
  row = {0, 0, 0, -kMax};
  slot.Edit(1, row, nullptr);
  EXPECT_EQ(row[3], -kMax);
}

TEST(SlotSampling, ResetForgetsTheSequenceBefore) {
  SamplingParams spec;
  spec.presence_penalty = 1;
  SlotSampling slot;
  slot.Reset(spec, 0, std::vector<TokenId>{1}, 0);
  slot.Reset(spec, 0, std::vector<TokenId>{2}, 1);
  std::vector<float> row(4, 1.0f);
  slot.Edit(1, row, nullptr);
  EXPECT_EQ(row, std::vector<float>(4, 1.0f));
}

}  // namespace
}  // namespace tokamak::sampling
