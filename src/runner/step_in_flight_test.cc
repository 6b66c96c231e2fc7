#include "runner/step_in_flight.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/check.h"
#include "ops/host/host_ops.h"

namespace tokamak {
namespace {

constexpr StepShape kShape = {.max_seqs = 4,
                              .max_tokens = 16,
                              .max_drafts = 3,
                              .max_blocks_per_seq = 8,
                              .num_groups = 1,
                              .max_updates = 6,
                              .max_image_tokens = 16};

CacheSpec Cache() {
  CacheSpec cache;
  cache.groups.push_back({.kind = CacheGroupKind::kFull, .block_size = 4, .window = 0});
  cache.num_device_blocks = 100;
  return cache;
}

std::vector<int32_t> Ints(const StepInFlight& in_flight, int64_t offset, int32_t count) {
  const auto staged = in_flight.Staged(offset, count);
  return {staged.begin(), staged.end()};
}

std::vector<int64_t> SlotMapping(const StepInFlight& in_flight) {
  const auto* slot_mapping = reinterpret_cast<const int64_t*>(in_flight.staging.data() +
                                                              in_flight.layout.SlotMappingOf(0));
  return {slot_mapping, slot_mapping + in_flight.layout.num_tokens};
}

class PackRowsTest : public ::testing::Test {
 protected:
  PackRowsTest() {
    Result<Buffer> staging = AllocateHostMemory(static_cast<size_t>(kShape.StagingBytes()));
    CHECK(staging.ok());
    in_flight_.staging = *staging;
  }
  void Apply(StepInput step, int32_t padded_tokens) {
    const std::vector<StepRow> rows = step.rows;
    const Status status = table_.Apply(step);
    ASSERT_TRUE(status.ok()) << status.ToString();
    PackRows(rows, padded_tokens, table_, cache_, kShape, &in_flight_);
  }

  const CacheSpec cache_ = Cache();
  static constexpr SequenceSlots::Limits kLimits = {.max_seqs = 4,
                                                    .max_step_tokens = 16,
                                                    .max_step_drafts = 3,
                                                    .max_context = 32,
                                                    .vocab_size = 50,
                                                    .max_encoder_rows = 8,
                                                    .max_step_image_rows = 8};
  SequenceSlots table_{kLimits, cache_};
  StepInFlight in_flight_;
};

TEST_F(PackRowsTest, LongRopeRowsFollowTheOthersInTheRopeTable) {
  CacheSpec cache = cache_;
  cache.original_context = 3;
  SequenceSlots table({.max_seqs = 4, .max_step_tokens = 16, .max_context = 32, .vocab_size = 50},
                      cache);
  StepInput step = {
      .admit = {{.slot = 0, .tokens = {7, 8, 9}, .num_prompt_tokens = 3},
                {.slot = 1, .tokens = {7, 8, 9, 10}, .num_prompt_tokens = 4}},
      .append = {{.slot = 0, .group = 0, .blocks = {30}}, {.slot = 1, .group = 0, .blocks = {31}}},
      .rows = {{.slot = 0, .num_tokens = 2}, {.slot = 1, .num_tokens = 2}}};
  const std::vector<StepRow> rows = step.rows;
  ASSERT_TRUE(table.Apply(step).ok());
  PackRows(rows, 0, table, cache, kShape, &in_flight_);
  EXPECT_EQ(Ints(in_flight_, in_flight_.layout.positions, 4), (std::vector<int32_t>{0, 1, 3, 4}));
  EXPECT_EQ(SlotMapping(in_flight_), (std::vector<int64_t>{120, 121, 124, 125}));
}

TEST_F(PackRowsTest, PaddingReadsAndWritesNoCache) {
  Apply({.admit = {{.slot = 2, .tokens = {7, 8, 9, 10, 11}, .num_prompt_tokens = 5}},
         .append = {{.slot = 2, .group = 0, .blocks = {30, 40}}},
         .rows = {{.slot = 2, .num_tokens = 4}}},
        0);
  Apply({.number = 1, .rows = {{.slot = 2, .num_tokens = 1, .sample = true}}}, 3);
  const BatchLayout& layout = in_flight_.layout;
  EXPECT_EQ(layout.num_tokens, 3);
  EXPECT_EQ(layout.num_seqs, 3);
  EXPECT_EQ(layout.num_logits, 3);
  EXPECT_EQ(Ints(in_flight_, layout.token_ids, 3), (std::vector<int32_t>{11, 0, 0}));
  EXPECT_EQ(Ints(in_flight_, layout.positions, 3), (std::vector<int32_t>{4, 0, 0}));
  EXPECT_EQ(Ints(in_flight_, layout.logit_rows, 3), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(Ints(in_flight_, layout.query_start_loc, 4), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(Ints(in_flight_, layout.seq_lens, 3), (std::vector<int32_t>{5, 0, 0}));
  EXPECT_EQ(Ints(in_flight_, layout.table_rows, 3)[0], 2);
  EXPECT_EQ(SlotMapping(in_flight_), (std::vector<int64_t>{40 * 4, -1, -1}));
  EXPECT_EQ(in_flight_.sample_rows.size(), 1u);  // padding rows draw nothing
  EXPECT_TRUE(layout.no_updates());
}

// A graph's batch has as many sequences as tokens, however the tokens are divided among rows.
TEST_F(PackRowsTest, AStepWithDraftsIsPaddedWithSequencesWithoutTokens) {
  Apply(
      {.admit = {{.slot = 2, .tokens = {7, 8}, .num_prompt_tokens = 2},
                 {.slot = 0, .tokens = {3}, .num_prompt_tokens = 1}},
       .append = {{.slot = 2, .group = 0, .blocks = {30}}, {.slot = 0, .group = 0, .blocks = {50}}},
       .rows = {{.slot = 2, .num_tokens = 1}}},
      0);
  Apply({.number = 1,
         .rows = {{.slot = 2, .num_tokens = 3, .sample = true, .drafts = {20, 21}},
                  {.slot = 0, .num_tokens = 1, .sample = true}}},
        7);  // more sequences than slots
  const BatchLayout& layout = in_flight_.layout;
  EXPECT_EQ(layout.num_tokens, 7);
  EXPECT_EQ(layout.num_seqs, 7);
  EXPECT_EQ(layout.num_logits, 7);
  EXPECT_EQ(Ints(in_flight_, layout.token_ids, 7), (std::vector<int32_t>{8, 20, 21, 3, 0, 0, 0}));
  EXPECT_EQ(Ints(in_flight_, layout.positions, 7), (std::vector<int32_t>{1, 2, 3, 0, 0, 0, 0}));
  EXPECT_EQ(Ints(in_flight_, layout.logit_rows, 7), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(Ints(in_flight_, layout.query_start_loc, 8),
            (std::vector<int32_t>{0, 3, 4, 5, 6, 7, 7, 7}));
  EXPECT_EQ(Ints(in_flight_, layout.seq_lens, 7), (std::vector<int32_t>{4, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(SlotMapping(in_flight_),
            (std::vector<int64_t>{30 * 4 + 1, 30 * 4 + 2, 30 * 4 + 3, 50 * 4, -1, -1, -1}));
  EXPECT_EQ(in_flight_.sample_rows.size(), 2u);
  EXPECT_LE(layout.bytes, kShape.StagingBytes());
}

TEST_F(PackRowsTest, AppendedBlocksUpdateTheBlockTables) {
  Apply(
      {.admit = {{.slot = 3, .tokens = {1}, .num_prompt_tokens = 1}},
       .append = {{.slot = 3, .group = 0, .blocks = {5}}, {.slot = 3, .group = 0, .blocks = {6}}}},
      0);
  const BatchLayout::Updates& updates = in_flight_.layout.updates[0];
  ASSERT_EQ(updates.count, 2);
  EXPECT_EQ(Ints(in_flight_, updates.indices, 2), (std::vector<int32_t>{3 * 8, 3 * 8 + 1}));
  EXPECT_EQ(Ints(in_flight_, updates.values, 2), (std::vector<int32_t>{5, 6}));
}

// PackUpdates packs the earlier updates.
TEST_F(PackRowsTest, TheLastUpdatesAreUploadedWithTheStep) {
  Apply({.admit = {{.slot = 1, .tokens = {1}, .num_prompt_tokens = 1}},
         .append = {{.slot = 1, .group = 0, .blocks = {10, 11, 12, 13, 14, 15, 16, 17}}}},
        0);
  const BatchLayout::Updates& updates = in_flight_.layout.updates[0];
  ASSERT_EQ(updates.count, 6);
  EXPECT_EQ(Ints(in_flight_, updates.indices, 6), (std::vector<int32_t>{10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(Ints(in_flight_, updates.values, 6), (std::vector<int32_t>{12, 13, 14, 15, 16, 17}));
  PackUpdates(0, table_.table_updates(0).first(2), kShape, &in_flight_);
  EXPECT_EQ(in_flight_.layout.num_tokens, 0);
  ASSERT_EQ(updates.count, 2);
  EXPECT_EQ(Ints(in_flight_, updates.indices, 2), (std::vector<int32_t>{8, 9}));
  EXPECT_EQ(Ints(in_flight_, updates.values, 2), (std::vector<int32_t>{10, 11}));
}

// One row shows the end of an image and the start of another, of which it shows other rows.
TEST_F(PackRowsTest, PositionsThatShowImagesNameTheirRows) {
  Apply({.encode = {{.id = 7, .num_rows = 3}, {.id = 8, .num_rows = 4}},
         .admit = {{.slot = 0, .tokens = {1, 2}, .num_prompt_tokens = 2},
                   {.slot = 2,
                    .tokens = {1, 9, 9, 9, 2, 9, 9, 3},
                    .num_prompt_tokens = 8,
                    .images = {{.position = 1, .image = 7, .num_rows = 3},
                               {.position = 5, .image = 8, .first_row = 2, .num_rows = 2}}}},
         .append = {{.slot = 0, .group = 0, .blocks = {5}},
                    {.slot = 2, .group = 0, .blocks = {6, 7}}},
         .rows = {{.slot = 0, .num_tokens = 1}, {.slot = 2, .num_tokens = 3}}},
        0);
  const std::vector<int32_t>& seven = *table_.encoder_rows().Find(7);
  const std::vector<int32_t>& eight = *table_.encoder_rows().Find(8);
  const BatchLayout& layout = in_flight_.layout;
  ASSERT_EQ(layout.num_image_tokens, 2);
  EXPECT_EQ(Ints(in_flight_, layout.image_from, 2), (std::vector<int32_t>{seven[0], seven[1]}));
  EXPECT_EQ(Ints(in_flight_, layout.image_to, 2), (std::vector<int32_t>{2, 3}));
  Apply({.number = 1, .rows = {{.slot = 0, .num_tokens = 1}, {.slot = 2, .num_tokens = 5}}}, 0);
  ASSERT_EQ(layout.num_image_tokens, 3);
  EXPECT_EQ(Ints(in_flight_, layout.image_from, 3),
            (std::vector<int32_t>{seven[2], eight[2], eight[3]}));
  EXPECT_EQ(Ints(in_flight_, layout.image_to, 3), (std::vector<int32_t>{1, 3, 4}));
  EXPECT_EQ(Ints(in_flight_, layout.token_ids, 6), (std::vector<int32_t>{2, 9, 2, 9, 9, 3}));
  EXPECT_LE(layout.bytes, kShape.StagingBytes());
}

TEST_F(PackRowsTest, PositionsOfImagesSeeEachOther) {
  StepShape shape = kShape;
  SequenceSlots::Limits limits = kLimits;
  limits.whole_images = true;
  SequenceSlots table(limits, cache_);
  StepInput step = {
      .encode = {{.id = 7, .num_rows = 2}, {.id = 8, .num_rows = 3}},
      .admit = {{.slot = 0, .tokens = {1, 2}, .num_prompt_tokens = 2},
                {.slot = 2,
                 .tokens = {9, 9, 1, 9, 9, 9, 2},
                 .num_prompt_tokens = 7,
                 .num_computed = 1,
                 .images = {{.position = 0, .image = 7, .num_rows = 2},
                            {.position = 3, .image = 8, .num_rows = 3}}}},
      .append = {{.slot = 0, .group = 0, .blocks = {5}}, {.slot = 2, .group = 0, .blocks = {6, 7}}},
      .rows = {{.slot = 0, .num_tokens = 2}, {.slot = 2, .num_tokens = 6, .sample = true}}};
  const std::vector<StepRow> rows = step.rows;
  ASSERT_TRUE(table.Apply(step).ok());
  const auto ranges = [&](bool bidirectional) {
    shape.bidirectional_images = bidirectional;
    PackRows(rows, 0, table, cache_, shape, &in_flight_);
    std::vector<std::pair<int64_t, int64_t>> packed;
    for (const BatchRows& range : in_flight_.bidirectional) {
      packed.emplace_back(range.begin, range.end);
    }
    return packed;
  };
  using Ranges = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(ranges(true), (Ranges{{2, 3}, {4, 7}}));
  EXPECT_EQ(ranges(false), Ranges{});
}

// An image of 2 x 3 rows, after one of 1 x 2 and between texts.
TEST_F(PackRowsTest, PositionsHaveThreeDimensionsWhereGridsAre) {
  StepShape shape = kShape;
  shape.rope_dimensions = 3;
  Result<Buffer> staging = AllocateHostMemory(static_cast<size_t>(shape.StagingBytes()));
  ASSERT_TRUE(staging.ok());
  in_flight_.staging = *staging;
  SequenceSlots::Limits limits = kLimits;
  limits.mrope = true;
  SequenceSlots table(limits, cache_);
  const auto pack = [&](StepInput step) {
    const std::vector<StepRow> rows = step.rows;
    const Status status = table.Apply(step);
    ASSERT_TRUE(status.ok()) << status.ToString();
    PackRows(rows, 0, table, cache_, shape, &in_flight_);
  };
  pack({.encode = {{.id = 7, .num_rows = 2}, {.id = 8, .num_rows = 6}},
        .admit = {{.slot = 0, .tokens = {1, 2}, .num_prompt_tokens = 2},
                  {.slot = 2,
                   .tokens = {9, 9, 1, 9, 9, 9, 9, 9, 9, 2, 3, 4},
                   .num_prompt_tokens = 11,
                   .images = {{.position = 0, .image = 7, .num_rows = 2, .grid_width = 2},
                              {.position = 3, .image = 8, .num_rows = 6, .grid_width = 3}}}},
        .append = {{.slot = 0, .group = 0, .blocks = {5}},
                   {.slot = 2, .group = 0, .blocks = {6, 7, 8, 9}}},
        .rows = {{.slot = 0, .num_tokens = 2}, {.slot = 2, .num_tokens = 7}}});
  const BatchLayout& layout = in_flight_.layout;
  ASSERT_EQ(layout.rope_dimensions, 3);
  EXPECT_EQ(Ints(in_flight_, layout.positions, 9),
            (std::vector<int32_t>{0, 1, 0, 0, 2, 3, 3, 3, 3}));
  EXPECT_EQ(Ints(in_flight_, layout.rope_positions, 27),
            (std::vector<int32_t>{0, 1, 0, 0, 2, 3, 3, 3, 3,  //
                                  0, 1, 0, 0, 2, 3, 3, 3, 4,  //
                                  0, 1, 0, 1, 2, 3, 4, 5, 3}));
  EXPECT_EQ(Ints(in_flight_, layout.token_indices, 9),
            (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_LE(layout.bytes, shape.StagingBytes());
  // The rest of the second image, and what follows.
  pack({.number = 1, .rows = {{.slot = 2, .num_tokens = 4}}});
  EXPECT_EQ(Ints(in_flight_, layout.rope_positions, 12),
            (std::vector<int32_t>{3, 3, 6, 7, 4, 4, 6, 7, 4, 5, 6, 7}));
  pack({.number = 2, .rows = {{.slot = 2, .num_tokens = 1, .sample = true}}});
  EXPECT_EQ(layout.rope_dimensions, 0);
  EXPECT_EQ(Ints(in_flight_, layout.positions, 1), std::vector<int32_t>{8});
  pack({.number = 3, .rows = {{.slot = 2, .num_tokens = 1, .sample = true}}});
  EXPECT_EQ(Ints(in_flight_, layout.positions, 1), std::vector<int32_t>{9});
}

// Graphs require that batches of equal counts have equal addresses, whatever they append.
TEST_F(PackRowsTest, UpdatesDoNotMoveTheRestOfTheBatch) {
  Apply({.admit = {{.slot = 0, .tokens = {1, 2}, .num_prompt_tokens = 2}},
         .append = {{.slot = 0, .group = 0, .blocks = {5}}},
         .rows = {{.slot = 0, .num_tokens = 1}}},
        0);
  const BatchLayout before = in_flight_.layout;
  Apply({.number = 1, .rows = {{.slot = 0, .num_tokens = 1}}}, 0);
  EXPECT_NE(before.bytes, in_flight_.layout.bytes);
  EXPECT_EQ(before.token_ids, in_flight_.layout.token_ids);
  EXPECT_EQ(before.positions, in_flight_.layout.positions);
  EXPECT_EQ(before.logit_rows, in_flight_.layout.logit_rows);
  EXPECT_EQ(before.query_start_loc, in_flight_.layout.query_start_loc);
  EXPECT_EQ(before.seq_lens, in_flight_.layout.seq_lens);
  EXPECT_EQ(before.table_rows, in_flight_.layout.table_rows);
  EXPECT_EQ(before.SlotMappingOf(0), in_flight_.layout.SlotMappingOf(0));
}

}  // namespace
}  // namespace tokamak
