#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "engine/testing/engine_core_fixture.h"

namespace tokamak {
namespace {

// Counts the characters of a snapshot's map, '1' to '9' as '#'.
std::map<char, int32_t> CountMap(const EngineSnapshot& snapshot) {
  std::map<char, int32_t> counts;
  for (const char c : snapshot.blocks.map) ++counts['1' <= c && c <= '9' ? '#' : c];
  return counts;
}

TEST_F(EngineCoreTest, TheBlockMapOfASnapshotAgreesWithTheStatistics) {
  Start();
  const std::vector<TokenId> prompt(9, 1);  // two whole blocks and a token
  ASSERT_TRUE(core_->Submit(Make(1, prompt, 8)).ok());
  core_->Step();
  core_->Step();
  ASSERT_TRUE(core_->Submit(Make(2, prompt, 4)).ok());
  bool shared = false, cached = false;
  for (int i = 0; i < 20; ++i) {
    core_->Step();
    const EngineSnapshot snapshot = core_->Snapshot(clock_.Now(), 1000);
    const EngineStats stats = core_->stats(clock_.Now());
    std::map<char, int32_t> counts = CountMap(snapshot);
    EXPECT_EQ(snapshot.blocks.map.size(), 16u);
    EXPECT_EQ(counts['#'], snapshot.blocks.referenced);
    EXPECT_EQ(counts['c'], snapshot.blocks.cached);
    EXPECT_EQ(counts['.'], snapshot.blocks.free);
    EXPECT_EQ(snapshot.blocks.referenced, stats.used_blocks);
    EXPECT_EQ(snapshot.blocks.cached, stats.cached_blocks);
    EXPECT_EQ(snapshot.blocks.total, stats.total_blocks);
    EXPECT_EQ(snapshot.stats.generated_tokens, stats.generated_tokens);
    const auto twos = std::count(snapshot.blocks.map.begin(), snapshot.blocks.map.end(), '2');
    EXPECT_EQ(twos, stats.running == 2 ? 2 : 0) << "whole blocks of the prompt, with two readers";
    shared |= stats.running == 2;
    cached |= counts['c'] > 0;
  }
  EXPECT_TRUE(shared && cached);
}

TEST_F(EngineCoreTest, ASnapshotListsSequencesAndTheLastRequests) {
  Start();
  clock_.Advance(std::chrono::seconds(5));
  Arrival first = Make(1, {1, 2, 3, 4, 5, 6}, 10);
  first.label = "call-1";
  first.priority = 3;
  ASSERT_TRUE(core_->Submit(std::move(first)).ok());
  core_->Step();
  clock_.Advance(std::chrono::seconds(2));
  core_->Step();
  clock_.Advance(std::chrono::seconds(1));
  ASSERT_TRUE(core_->Submit(Make(2, {1, 2}, 1)).ok());
  core_->Step();
  const EngineSnapshot snapshot = core_->Snapshot(clock_.Now(), 1000);
  ASSERT_EQ(snapshot.sequences.size(), 1u);
  const EngineSnapshot::Sequence& sequence = snapshot.sequences[0];
  EXPECT_EQ(sequence.request, "call-1");
  EXPECT_EQ(sequence.state, EngineSnapshot::State::kRunning);
  EXPECT_EQ(sequence.prompt_tokens, 6);
  EXPECT_EQ(sequence.output_tokens, 3);
  EXPECT_EQ(sequence.computed_tokens, 8);
  EXPECT_EQ(sequence.priority, 3);
  EXPECT_EQ(sequence.blocks, 2);
  EXPECT_DOUBLE_EQ(sequence.age_seconds, 3);
  ASSERT_EQ(snapshot.requests.size(), 2u);
  EXPECT_EQ(snapshot.requests[0].id, "call-1");
  EXPECT_FALSE(snapshot.requests[0].end);
  EXPECT_FALSE(snapshot.requests[0].ended);
  EXPECT_DOUBLE_EQ(snapshot.requests[0].arrived, 997);
  EXPECT_EQ(snapshot.requests[1].id, "2");
  EXPECT_EQ(snapshot.requests[1].end, FinishReason::kLength);
  EXPECT_DOUBLE_EQ(*snapshot.requests[1].ended, 1000);
}

TEST_F(EngineCoreTest, ASnapshotListsPausedSequences) {
  using State = EngineSnapshot::State;
  Start();
  Arrival two = Make(1, {1, 2, 3}, 10);
  two.sampling.n = 2;
  ASSERT_TRUE(core_->Submit(std::move(two)).ok());
  ASSERT_TRUE(core_->Submit(Make(2, {4, 5}, 10)).ok());
  const auto states = [&] {
    const EngineSnapshot snapshot = core_->Snapshot(clock_.Now(), 0);
    EXPECT_EQ(snapshot.num_sequences, static_cast<int32_t>(snapshot.sequences.size()));
    std::vector<std::tuple<std::string, int32_t, State>> list;
    for (const auto& s : snapshot.sequences) list.emplace_back(s.request, s.choice, s.state);
    return list;
  };
  const auto step = [&](int count) {
    for (int i = 0; i < count; ++i) core_->Step();
  };
  step(3);
  EXPECT_THAT(states(), testing::UnorderedElementsAre(std::tuple("1", 0, State::kRunning),
                                                      std::tuple("1", 1, State::kRunning),
                                                      std::tuple("2", 0, State::kRunning)));
  core_->Pause(1);
  step(3);
  EXPECT_THAT(states(), testing::ElementsAre(std::tuple("2", 0, State::kRunning),
                                             std::tuple("1", 0, State::kPaused),
                                             std::tuple("1", 1, State::kPaused)));
  RunAll();  // runs the other request to its end
  EXPECT_THAT(states(), testing::ElementsAre(std::tuple("1", 0, State::kPaused),
                                             std::tuple("1", 1, State::kPaused)));
  core_->Resume(1);
  step(3);
  EXPECT_THAT(states(), testing::ElementsAre(std::tuple("1", 0, State::kRunning),
                                             std::tuple("1", 1, State::kRunning)));
  RunAll();
  EXPECT_THAT(states(), testing::IsEmpty());
}

TEST_F(EngineCoreTest, ASnapshotKeepsTheLast64Requests) {
  Start();
  for (RequestId id = 1; id <= 100; ++id) {
    ASSERT_TRUE(core_->Submit(Make(id, {static_cast<TokenId>(id % 100)}, 1)).ok());
    RunAll();
  }
  const EngineSnapshot snapshot = core_->Snapshot(clock_.Now(), 0);
  ASSERT_EQ(snapshot.requests.size(), 64u);
  EXPECT_EQ(snapshot.requests.front().id, "37");
  EXPECT_EQ(snapshot.requests.back().id, "100");
}

TEST_F(EngineCoreTest, ThePrefixTreeOfASnapshotHasANodePerRunOfBlocks) {
  Start();
  const auto run = [&](RequestId id, std::vector<TokenId> prompt) {
    ASSERT_TRUE(core_->Submit(Make(id, std::move(prompt), 1)).ok());
    RunAll();
  };
  run(1, {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 9});  // blocks 1, 2, 3
  const EngineSnapshot one = core_->Snapshot(clock_.Now(), 0);
  ASSERT_EQ(one.tree.size(), 2u);
  EXPECT_EQ(one.tree[0].id, 0);
  EXPECT_EQ(one.tree[0].parent, -1);
  EXPECT_EQ(one.tree[1].parent, 0);
  EXPECT_EQ(one.tree[1].blocks, 3);
  clock_.Advance(std::chrono::seconds(4));
  run(2, {1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 9});  // branches after 1, 2
  const EngineSnapshot two = core_->Snapshot(clock_.Now(), 0);
  ASSERT_EQ(two.tree.size(), 4u);
  EXPECT_EQ(two.num_tree_blocks, 4);
  EXPECT_FALSE(two.tree_truncated);
  EXPECT_EQ(two.tree[1].id, one.tree[1].id) << "the run begins with the same block";
  EXPECT_EQ(two.tree[1].blocks, 2);
  for (const size_t leaf : {2, 3}) {
    EXPECT_EQ(two.tree[leaf].parent, two.tree[1].id);
    EXPECT_EQ(two.tree[leaf].blocks, 1);
    EXPECT_EQ(two.tree[leaf].readers, 0);
  }
  // Children are in the order of their content: 3 was last used 4 s before 4.
  EXPECT_GE(two.tree[2].age_seconds, 4);
  EXPECT_LT(two.tree[3].age_seconds, 1);
}

}  // namespace
}  // namespace tokamak
