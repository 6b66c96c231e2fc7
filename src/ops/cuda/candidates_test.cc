// The candidates of the CUDA backend's sampler against the host's, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "ops/cuda/testing/sampler_pair.h"

namespace tokamak {
namespace {

constexpr int32_t kRows = 6;

TEST_F(CudaSampling, CandidatesAreTheHosts) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0, 3);
  for (const int32_t vocab : {61, 4099}) {
    Pair pair(*ops_, *stream_, kRows, vocab);
    for (int round = 0; round < 8; ++round) {
      const auto row = static_cast<size_t>(vocab);
      std::vector<float> logits(kRows * row);
      for (float& x : logits) x = std::round(normal(random) * 64) / 64;  // many are equal
      for (int32_t t = 0; t < vocab; t += 2) logits[4 * row + static_cast<size_t>(t)] = -kInf;
      logits[5 * row + 7] = std::numeric_limits<float>::quiet_NaN();
      std::vector<SampleRow> rows;
      std::vector<TokenMask> masks;
      for (SequenceSlotId slot = 0; slot < kRows; ++slot) {
        SamplingParams spec = RandomSpec(random, vocab);
        spec.logprobs.reset();
        pair.Admit(slot, spec, {3, 5, 5, static_cast<TokenId>(slot), 2, 8}, 2);
        // One row draws; one wants more than there are.
        const int32_t wanted = slot == 3 ? 0 : slot == 1 ? vocab + 3 : 10 + 7 * slot;
        rows.push_back({.slot = slot, .position = 6, .num_candidates = wanted});
        if (slot > 2) continue;
        TokenMask mask = {.slot = slot};
        for (int32_t word = 0; word * 32 < vocab; ++word) {
          mask.allowed.push_back(round == 7 ? 0 : static_cast<uint32_t>(random()));
        }
        if (slot != 1) masks.push_back(std::move(mask));
      }
      const std::vector<SampleResult> results = pair.Sample(logits, rows, masks);
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_EQ(results[i].candidates.empty(),
                  rows[i].num_candidates == 0 || results[i].health != RowHealth::kOk);
      }
      EXPECT_EQ(results[5].health, RowHealth::kNotFinite);
      if (round < 7) continue;
      EXPECT_EQ(results[0].health, RowHealth::kNoCandidate);
    }
  }
}

}  // namespace
}  // namespace tokamak
