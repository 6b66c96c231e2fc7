#include "engine/block_manager.h"

#include <gtest/gtest.h>

#include <numeric>

namespace tokamak {
namespace {

constexpr int32_t kBlockSize = 4;

CacheSpec Spec(int32_t device, int32_t host = 0) {
  CacheSpec spec;
  spec.groups = {{CacheGroupKind::kFull, kBlockSize, 0}};
  spec.num_device_blocks = device;
  spec.num_host_blocks = host;
  return spec;
}

std::vector<ContentId> Tokens(int32_t count, ContentId first = 0) {
  std::vector<ContentId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// A sequence that has been admitted, computed and committed.
SequenceBlocks Compute(BlockManager& manager, const std::vector<ContentId>& content,
                       std::string_view root = "") {
  SequenceBlocks blocks;
  const auto computed =
      manager.TryAdmit(root, content, static_cast<int32_t>(content.size()) - 1, 0, &blocks);
  EXPECT_TRUE(computed.has_value());
  const auto length = static_cast<int32_t>(content.size());
  EXPECT_EQ(manager.Grow(length, true, &blocks), length);
  manager.Commit(content, length, &blocks);
  manager.Unpin(manager.TakeStepWork().pins);
  return blocks;
}

int32_t Match(BlockManager& manager, const std::vector<ContentId>& content,
              std::string_view root = "") {
  SequenceBlocks blocks;
  const auto computed =
      manager.TryAdmit(root, content, static_cast<int32_t>(content.size()) - 1, 0, &blocks);
  if (!computed) return -1;
  manager.Release(&blocks);
  manager.Unpin(manager.TakeStepWork().pins);
  return *computed;
}

TEST(BlockPool, AllocatesEachBlockOnceAndFreesItWithItsLastReference) {
  BlockPool pool(2);
  const BlockId a = pool.Allocate();
  const BlockId b = pool.Allocate();
  EXPECT_NE(a, b);
  EXPECT_EQ(pool.Allocate(), kNoBlock);
  pool.Ref(a);
  EXPECT_EQ(pool.Unref(a), 1);
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.Unref(a), 0);
  EXPECT_EQ(pool.Allocate(), a);
}

TEST(PrefixCache, WholeBlocksAreSharedByReference) {
  BlockManager manager(Spec(8), true);
  SequenceBlocks first = Compute(manager, Tokens(10));
  SequenceBlocks second;
  EXPECT_EQ(manager.TryAdmit("", Tokens(9), 8, 0, &second), 8);
  EXPECT_EQ(second.block_tables[0][0], first.block_tables[0][0]);
  EXPECT_EQ(second.block_tables[0][1], first.block_tables[0][1]);
  EXPECT_NE(second.block_tables[0][2], first.block_tables[0][2]);
  EXPECT_TRUE(manager.TakeStepWork().copies.empty());
}

TEST(PrefixCache, HitInsideABlockCopiesItAndLeavesTheOriginalShared) {
  BlockManager manager(Spec(8), true);
  SequenceBlocks first = Compute(manager, Tokens(8));
  std::vector<ContentId> other = Tokens(6);
  other.push_back(77);
  other.push_back(78);
  SequenceBlocks second;
  EXPECT_EQ(manager.TryAdmit("", other, 7, 0, &second), 6);
  const BlockManager::StepWork work = manager.TakeStepWork();
  ASSERT_EQ(work.copies.size(), 1u);
  EXPECT_EQ(work.copies[0].source, first.block_tables[0][1]);
  EXPECT_EQ(work.copies[0].destination, second.block_tables[0][1]);
  EXPECT_EQ(work.pins.size(), 1u);
}

// All blocks of a longer first row, or none.
TEST(PrefixCache, AdmitsWithBlocksForTheWholeFirstRow) {
  BlockManager manager(Spec(8), true);
  SequenceBlocks first = Compute(manager, Tokens(9));  // 3 blocks of 4 positions
  SequenceBlocks second;
  const auto up_to = [](int32_t end) {
    return [end](int32_t num_computed) {
      EXPECT_EQ(num_computed, 8);
      return end;
    };
  };
  const auto content = Tokens(40);
  EXPECT_FALSE(manager.TryAdmit("", content, 8, 0, up_to(29), &second).has_value());
  EXPECT_EQ(second.size(), 0);
  EXPECT_EQ(manager.num_available(), 5);
  EXPECT_EQ(manager.TryAdmit("", content, 8, 0, up_to(28), &second), 8);
  EXPECT_EQ(second.size(), 7);
  EXPECT_EQ(manager.num_available(), 0);
}

TEST(PrefixCache, CopiesTheChildWithTheLongestCommonPrefix) {
  BlockManager manager(Spec(16), true);
  Compute(manager, {1, 2, 3, 9, 0});
  Compute(manager, {1, 2, 5, 5, 0});
  Compute(manager, {1, 7, 7, 7, 0});
  EXPECT_EQ(Match(manager, {1, 2, 5, 6, 0}), 3);
  EXPECT_EQ(Match(manager, {1, 2, 4, 4, 0}), 2);
  EXPECT_EQ(Match(manager, {1, 9, 9, 9, 0}), 1);
  EXPECT_EQ(Match(manager, {3, 2, 5, 5, 0}), 0);
}

TEST(PrefixCache, OneTokenIsAlwaysRecomputed) {
  BlockManager manager(Spec(8), true);
  SequenceBlocks first = Compute(manager, Tokens(8));
  EXPECT_EQ(Match(manager, Tokens(8)), 7);
  EXPECT_EQ(Match(manager, Tokens(4)), 3);
  EXPECT_EQ(Match(manager, Tokens(1)), 0);
}

TEST(PrefixCache, DifferentRootsShareNothing) {
  BlockManager manager(Spec(8), true);
  SequenceBlocks first = Compute(manager, Tokens(8), "salt");
  EXPECT_EQ(Match(manager, Tokens(8)), 0);
  EXPECT_EQ(Match(manager, Tokens(8), "salt"), 7);
}

TEST(PrefixCache, DisabledItMatchesAndKeepsNothing) {
  BlockManager manager(Spec(8, 8), false);
  SequenceBlocks first = Compute(manager, Tokens(8));
  EXPECT_EQ(Match(manager, Tokens(8)), 0);
  manager.Release(&first);
  EXPECT_EQ(manager.num_cached(), 0);
  EXPECT_EQ(manager.num_used(), 0);
}

TEST(PrefixCache, BlocksNotYetCommittedAreNotMatched) {
  BlockManager manager(Spec(8), true);
  SequenceBlocks first;
  ASSERT_TRUE(manager.TryAdmit("", Tokens(9), 8, 0, &first));
  manager.Grow(9, true, &first);
  EXPECT_EQ(Match(manager, Tokens(9)), 0);
  manager.Commit(Tokens(9), 7, &first);  // the second block is not full
  EXPECT_EQ(Match(manager, Tokens(9)), 4);
}

TEST(PrefixCache, EvictsTheLeastRecentlyUsedLeafFirst) {
  BlockManager manager(Spec(6), true);
  SequenceBlocks a = Compute(manager, Tokens(8, 100));
  SequenceBlocks b = Compute(manager, Tokens(8, 200));
  const std::vector<BlockId> of_a = a.block_tables[0];
  const std::vector<BlockId> of_b = b.block_tables[0];
  manager.Release(&a);
  manager.Release(&b);
  EXPECT_EQ(Match(manager, Tokens(9, 100)), 8);  // makes a the more recent
  SequenceBlocks c;
  ASSERT_TRUE(manager.TryAdmit("", Tokens(24, 300), 23, 0, &c));
  EXPECT_EQ(manager.Grow(24, true, &c), 24);
  // Two free blocks, then b from its end, then a from its end.
  const std::vector<BlockId> taken(c.block_tables[0].begin() + 2, c.block_tables[0].end());
  EXPECT_EQ(taken, (std::vector<BlockId>{of_b[1], of_b[0], of_a[1], of_a[0]}));
}

TEST(PrefixCache, BlocksInUseAreNotEvicted) {
  BlockManager manager(Spec(3), true);
  SequenceBlocks a = Compute(manager, Tokens(8));
  SequenceBlocks b;
  ASSERT_TRUE(manager.TryAdmit("", Tokens(8, 50), 7, 0, &b));
  EXPECT_EQ(manager.Grow(8, true, &b), 4);
  EXPECT_EQ(Match(manager, Tokens(8, 70)), -1);
  manager.Release(&b);
  EXPECT_EQ(Match(manager, Tokens(8, 70)), 0);
}

TEST(PrefixCache, EvictedBlocksMoveToTheHostAndComeBack) {
  BlockManager manager(Spec(3, 4), true);
  SequenceBlocks a = Compute(manager, Tokens(9));
  const std::vector<BlockId> blocks = a.block_tables[0];
  manager.Release(&a);
  SequenceBlocks b;
  ASSERT_TRUE(manager.TryAdmit("", Tokens(9, 50), 8, 0, &b));
  EXPECT_EQ(manager.Grow(12, true, &b), 12);
  std::vector<CopyBlock> out = manager.TakeStepWork().copies;
  ASSERT_EQ(out.size(), 2u);  // the third block of a was not full
  EXPECT_EQ(out[0].source, blocks[1]);
  EXPECT_EQ(out[0].destination_tier, Tier::kHost);
  manager.Release(&b);
  EXPECT_EQ(manager.TryAdmit("", Tokens(9), 8, 0, &a), 8);
  const BlockManager::StepWork back = manager.TakeStepWork();
  ASSERT_EQ(back.copies.size(), 2u);
  EXPECT_EQ(back.copies[1].source_tier, Tier::kHost);
  EXPECT_EQ(back.copies[1].source, out[0].destination);
  EXPECT_EQ(back.copies[1].destination, a.block_tables[0][1]);
  EXPECT_EQ(back.pins.size(), 2u);  // host blocks that are freed when the step has retired
}

TEST(PrefixCache, ASecondComputationReplacesAnUnusedBlock) {
  BlockManager manager(Spec(8), true);
  SequenceBlocks a;
  SequenceBlocks b;
  ASSERT_TRUE(manager.TryAdmit("", Tokens(4), 3, 0, &a));
  ASSERT_TRUE(manager.TryAdmit("", Tokens(4), 3, 0, &b));
  manager.Commit(Tokens(4), 4, &a);
  manager.Release(&a);
  EXPECT_EQ(manager.num_cached(), 1);
  manager.Commit(Tokens(4), 4, &b);
  EXPECT_EQ(manager.num_cached(), 0);
  EXPECT_EQ(manager.num_used(), 1);
  manager.Release(&b);
  EXPECT_EQ(manager.num_cached(), 1);
}

CacheSpec WindowSpec(int32_t device, int32_t window) {
  CacheSpec spec = Spec(device);
  spec.groups.push_back({CacheGroupKind::kWindow, kBlockSize, window});
  return spec;
}

TEST(PrefixCache, AMatchNeedsOnlyTheLastWindow) {
  BlockManager manager(WindowSpec(20, 5), true);
  SequenceBlocks a = Compute(manager, Tokens(17));
  manager.DropOutOfWindow(17, &a);  // keeps positions 13 and later
  EXPECT_EQ(a.block_tables[1][2], kNoBlock);
  EXPECT_NE(a.block_tables[1][3], kNoBlock);
  SequenceBlocks b;
  EXPECT_EQ(manager.TryAdmit("", Tokens(17), 16, 0, &b), 16);  // a query at 16 sees 12 to 16
  EXPECT_EQ(b.block_tables[1][2], kNoBlock);
  EXPECT_EQ(b.block_tables[1][3], a.block_tables[1][3]);
}

TEST(PrefixCache, AMatchEndsWhereAWholeWindowIsCached) {
  BlockManager manager(WindowSpec(11, 5), true);
  SequenceBlocks a = Compute(manager, Tokens(17));
  manager.DropOutOfWindow(17, &a);
  // The window blocks that a dropped are unused, so the next sequence may take them.
  SequenceBlocks b;
  ASSERT_TRUE(manager.TryAdmit("", Tokens(8, 500), 7, 0, &b));
  EXPECT_EQ(manager.Grow(8, true, &b), 8);
  manager.Release(&b);
  EXPECT_EQ(Match(manager, Tokens(13)), 0);   // a query at 12 sees 8 to 12: block 2 is gone
  EXPECT_EQ(Match(manager, Tokens(17)), 16);  // a query at 16 sees 12 to 16: block 3 is there
}

TEST(BlockManager, AForkSharesWholeBlocksAndCopiesTheLast) {
  BlockManager manager(Spec(8), true);
  SequenceBlocks parent = Compute(manager, Tokens(10));
  SequenceBlocks child;
  EXPECT_EQ(manager.TryFork(parent, 9, 0, &child), 9);
  EXPECT_EQ(child.block_tables[0][1], parent.block_tables[0][1]);
  const BlockManager::StepWork work = manager.TakeStepWork();
  ASSERT_EQ(work.copies.size(), 1u);
  EXPECT_EQ(work.copies[0].source, parent.block_tables[0][2]);
  EXPECT_EQ(work.copies[0].destination, child.block_tables[0][2]);
  EXPECT_EQ(manager.num_used(), 4);
}

TEST(BlockManager, RefusesAForkWhoseWindowWasDropped) {
  BlockManager manager(WindowSpec(20, 5), true);
  SequenceBlocks parent = Compute(manager, Tokens(17));
  manager.DropOutOfWindow(17, &parent);
  SequenceBlocks child;
  EXPECT_FALSE(manager.TryFork(parent, 9, 0, &child).has_value());
}

TEST(BlockManager, AdmissionKeepsTheBlocksPromisedToOthers) {
  BlockManager manager(Spec(4), true);
  SequenceBlocks a;
  EXPECT_FALSE(manager.TryAdmit("", Tokens(8), 7, /*demand=*/5, &a).has_value());
  EXPECT_TRUE(manager.TryAdmit("", Tokens(8), 7, /*demand=*/4, &a).has_value());
}

TEST(BlockManager, CountsTheBlocksOfAWindow) {
  const BlockManager manager(WindowSpec(20, 5), true);
  EXPECT_EQ(manager.BlocksFor(4, 1), 2);
  EXPECT_EQ(manager.BlocksFor(40, 1), 10 + 2);   // 5 positions touch at most 2 blocks
  EXPECT_EQ(manager.BlocksFor(40, 16), 10 + 6);  // 20 positions touch at most 6
}

}  // namespace
}  // namespace tokamak
