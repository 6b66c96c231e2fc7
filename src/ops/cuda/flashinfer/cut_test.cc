// The cuts for FlashInfer's kernels: no key is forgotten or counted twice, and everything fits into
// the memory that a plan allocates.
#include "ops/cuda/flashinfer/cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tokamak::cuda {
namespace {

constexpr int32_t kMaxSeqs = 40;
constexpr int32_t kMaxTokens = 3000;

struct Batch {
  std::vector<int32_t> query_start_loc = {0};
  std::vector<int32_t> seq_lens;

  void Add(int32_t length, int32_t queries) {
    seq_lens.push_back(length);
    query_start_loc.push_back(query_start_loc.back() + queries);
  }
};

// Checks what the kernels do with the arrays: each CTA visits the rows of its tile and the keys of
// its chunk, and writes one partial for each token of its rows.
void CheckCut(const Batch& batch, int32_t group, int32_t max_ctas) {
  const FlashInferCutter cutter(group, max_ctas);
  const FlashInferCut cut = cutter.Cut(batch.query_start_loc, batch.seq_lens);
  const FlashInferBounds bounds = cutter.Bounds(kMaxSeqs, kMaxTokens);
  ASSERT_LE(cut.bytes(), bounds.bytes);
  ASSERT_LE(cut.num_partials, bounds.num_partials);
  ASSERT_LE(cut.num_units, cut.num_ctas);
  std::vector<int32_t> plan(cut.bytes() / 4 + 1, -1);
  cutter.Write(cut, batch.query_start_loc, batch.seq_lens, plan.data());
  ASSERT_EQ(plan[static_cast<size_t>(cut.chunk_size())], cut.chunk_keys);
  const auto* valid = reinterpret_cast<const bool*>(&plan[static_cast<size_t>(cut.valid())]);
  const auto at = [&](int64_t array, int32_t i) { return plan[static_cast<size_t>(array + i)]; };

  std::vector<std::vector<int32_t>> keys_of_row(  // how many keys of a row were visited
      static_cast<size_t>(batch.query_start_loc.back() * group));
  std::vector<int32_t> writers(static_cast<size_t>(at(cut.sequence_partials(), cut.num_seqs)));
  ASSERT_EQ(writers.size(), static_cast<size_t>(cut.split ? cut.num_partials : cut.num_tokens));
  for (int32_t cta = 0; cta < cut.num_ctas; ++cta) {
    ASSERT_EQ(valid[cta], cta < cut.num_units);
    if (!valid[cta]) continue;
    const int32_t s = at(cut.sequences(), cta), chunk = at(cut.chunks(), cta);
    ASSERT_TRUE(s >= 0 && s < cut.num_seqs && chunk >= 0);
    const auto seq = static_cast<size_t>(s);
    const int32_t length = batch.seq_lens[seq], first_token = batch.query_start_loc[seq];
    const int32_t rows = (batch.query_start_loc[seq + 1] - first_token) * group;
    const int32_t first = at(cut.tiles(), cta) * cut.tile_rows;
    const int32_t end = std::min(rows, first + cut.tile_rows);
    ASSERT_LT(first, end);
    const int32_t begin_key = chunk * cut.chunk_keys;
    const int32_t end_key = std::min(length, begin_key + cut.chunk_keys);
    ASSERT_LE(begin_key, end_key);
    const int32_t chunks = (std::max(1, length) + cut.chunk_keys - 1) / cut.chunk_keys;
    for (int32_t row = first; row < end; ++row) {
      const int32_t index = first_token * group + row;
      auto& keys = keys_of_row[static_cast<size_t>(index)];
      keys.resize(static_cast<size_t>(length));
      for (int32_t key = begin_key; key < end_key; ++key) ++keys[static_cast<size_t>(key)];
      const int32_t partial =
          at(cut.sequence_partials(), s) + row / group * (cut.split ? chunks : 1) + chunk;
      ASSERT_LT(partial, at(cut.token_partials(), first_token + row / group + 1));
      ASSERT_GE(partial, at(cut.token_partials(), first_token + row / group));
      ++writers[static_cast<size_t>(partial)];
    }
  }
  for (size_t row = 0; row < keys_of_row.size(); ++row) {
    for (const int32_t visits : keys_of_row[row]) ASSERT_EQ(visits, 1) << "row " << row;
  }
  for (const int32_t rows : writers) ASSERT_EQ(rows, group);
  if (!cut.split) {
    const auto* tokens = &plan[static_cast<size_t>(cut.sequence_partials())];
    EXPECT_TRUE(std::equal(batch.query_start_loc.begin(), batch.query_start_loc.end(), tokens));
  }
}

TEST(FlashInferCut, EveryRowMeetsEveryKeyOnce) {
  std::mt19937 random(1);
  const auto draw = [&](int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random);
  };
  for (int round = 0; round < 300; ++round) {
    Batch batch;
    const bool decodes = round % 3 == 0;
    const int32_t longest = round % 2 == 0 ? 150 : 3000;
    const int32_t num_seqs = draw(1, round % 4 == 0 ? kMaxSeqs : 4);
    for (int32_t s = 0; s < num_seqs; ++s) {
      const int32_t length = draw(1, longest);
      batch.Add(length, decodes || draw(0, 1) == 0 ? 1 : draw(1, std::min(length, 60)));
    }
    if (decodes && round % 2 == 0) batch.Add(0, 1);  // padding
    // As many sequences as queries, as the batches of graphs have.
    if (round % 3 == 1) {
      while (batch.seq_lens.size() < static_cast<size_t>(batch.query_start_loc.back()) &&
             batch.seq_lens.size() <= kMaxSeqs) {
        batch.Add(0, 0);
      }
    }
    if (batch.seq_lens.size() > kMaxSeqs) continue;
    const int32_t groups[] = {1, 2, 3, 7, 8, 48};
    SCOPED_TRACE(round);
    CheckCut(batch, groups[draw(0, 5)], draw(1, 3) == 1 ? 4 : 66);
    if (HasFatalFailure()) return;
  }
}

TEST(FlashInferCut, LongSequencesAreSplitUntilAllCtasHaveWork) {
  Batch batch;
  batch.Add(8000, 1);
  batch.Add(8000, 1);
  const FlashInferCut cut = FlashInferCutter(4, 66).Cut(batch.query_start_loc, batch.seq_lens);
  EXPECT_TRUE(cut.split);
  EXPECT_EQ(cut.tile_rows, 16);
  EXPECT_EQ(cut.chunk_keys, 256);  // 2 · 32 units; chunks of 192 would make 84
  EXPECT_EQ(cut.num_units, 64);
}

TEST(FlashInferCut, AStepOfDecodingHasItsArraysWhereItsSizeSays) {
  const FlashInferCutter cutter(4, 66);
  for (const int32_t num_seqs : {1, 5, 33, 100}) {
    Batch empty, mixed;
    for (int32_t s = 0; s < num_seqs; ++s) {
      empty.Add(0, 1);
      mixed.Add(s == 0 ? 50000 : s * 17, 1);
    }
    Batch drafts;
    drafts.Add(50000, std::min(num_seqs, 17));
    while (drafts.query_start_loc.back() < num_seqs) drafts.Add(300, 1);
    while (drafts.seq_lens.size() < static_cast<size_t>(num_seqs)) drafts.Add(0, 0);
    const FlashInferCut a = cutter.Cut(empty.query_start_loc, empty.seq_lens);
    for (const Batch& batch : {mixed, drafts}) {
      const FlashInferCut b = cutter.Cut(batch.query_start_loc, batch.seq_lens);
      EXPECT_TRUE(a.split && b.split);
      EXPECT_EQ(a.tile_rows, b.tile_rows);
      EXPECT_EQ(a.num_ctas, b.num_ctas);
      EXPECT_LE(b.num_units, b.num_ctas);
      EXPECT_EQ(a.valid(), b.valid());
    }
  }
}

TEST(FlashInferCut, AnEmptyBatchHasNoCtas) {
  EXPECT_EQ(FlashInferCutter(4, 66).Cut(std::vector<int32_t>{0}, {}).num_ctas, 0);
}

}  // namespace
}  // namespace tokamak::cuda
