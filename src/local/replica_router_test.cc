#include "local/replica_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace tokamak {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

constexpr int32_t kBlock = 4;

std::vector<uint64_t> Prefixes(const std::vector<ContentId>& content, const std::string& key = "") {
  return HashPrefixes(key, content, kBlock);
}

// A prompt of so many blocks, different for each seed.
std::vector<uint64_t> Prompt(ContentId seed, int32_t num_blocks) {
  std::vector<ContentId> content(static_cast<size_t>(num_blocks * kBlock), seed);
  return Prefixes(content);
}

TEST(HashPrefixes, AreOfWholeBlocksAndDependOnAllBefore) {
  const auto hashes = Prefixes({1, 2, 3, 4, 5, 6, 7, 8, 9});
  ASSERT_THAT(hashes, SizeIs(2));
  EXPECT_EQ(Prefixes({1, 2, 3, 4, 5, 6, 7, 0})[0], hashes[0]);
  EXPECT_NE(Prefixes({1, 2, 3, 4, 5, 6, 7, 0})[1], hashes[1]);
  EXPECT_NE(Prefixes({0, 2, 3, 4, 5, 6, 7, 8})[1], hashes[1]);
  EXPECT_NE(Prefixes({1, 2, 3, 4}, "salt")[0], hashes[0]);
  EXPECT_THAT(Prefixes({1, 2, 3}), SizeIs(0));
}

TEST(ReplicaRouter, SendsAPromptWhereItsPrefixIs) {
  ReplicaRouter router({.num_replicas = 3, .cache_blocks = 100});
  for (ContentId seed = 0; seed < 3; ++seed) EXPECT_EQ(router.Choose(Prompt(seed, 4), 0), seed);
  for (const ContentId seed : {2, 0, 1, 1, 2, 0})
    EXPECT_EQ(router.Choose(Prompt(seed, 8), 0), seed);
  // Less than half of it is there, so load decides: replica 1 has least.
  router.End(1, 0);
  EXPECT_EQ(router.Choose(Prompt(2, 17), 0), 1);
}

TEST(ReplicaRouter, ForgetsWhatWasUsedLeastRecently) {
  ReplicaRouter router({.num_replicas = 2, .cache_blocks = 8});
  EXPECT_EQ(router.Choose(Prompt(0, 4), 0), 0);
  EXPECT_EQ(router.Choose(Prompt(1, 4), 0), 1);
  EXPECT_EQ(router.Choose(Prompt(2, 4), 0), 0);  // the same load; replica 1 was chosen later
  EXPECT_EQ(router.Choose(Prompt(0, 4), 0), 0);  // used again, so prompt 2 is older now
  EXPECT_EQ(router.Choose(Prompt(0, 8), 0), 0);
  for (int i = 0; i < 4; ++i) router.End(0, 0);
  EXPECT_EQ(router.Choose({}, 0), 0);  // has fewest
  EXPECT_EQ(router.Choose({}, 0), 1);  // equal load: chosen longest ago
  router.End(0, 0);
  router.End(1, 0);
  router.End(1, 0);
  EXPECT_EQ(router.Choose({}, 0), 0);
  EXPECT_EQ(router.Choose(Prompt(2, 4), 0), 1);  // nobody knows it any more
}

TEST(ReplicaRouter, SparesAnOverloadedReplica) {
  ReplicaRouter router({.num_replicas = 2, .cache_blocks = 100});
  std::vector<int32_t> chosen;
  for (int i = 0; i < 8; ++i) chosen.push_back(router.Choose(Prompt(0, 4), 0));
  // From the sixth on, replica 0 has five more than the other, which then knows the prompt, too.
  EXPECT_THAT(chosen, ElementsAre(0, 0, 0, 0, 0, 1, 1, 1));
}

TEST(ReplicaRouter, CountsRequestsOfThePriorityFirst) {
  ReplicaRouter router({.num_replicas = 2, .cache_blocks = 100});
  EXPECT_EQ(router.Choose({}, 5), 0);
  EXPECT_EQ(router.Choose({}, 0), 1);
  EXPECT_EQ(router.Choose({}, 0), 0);  // equal load: chosen longest ago
  EXPECT_EQ(router.Choose({}, 5), 1);  // has no request of this priority
  EXPECT_EQ(router.Choose({}, 9), 0);  // neither has one; 0 was chosen longer ago
}

TEST(ReplicaRouter, LeavesOutReplicasThatTakeNoRequests) {
  ReplicaRouter router({.num_replicas = 2, .cache_blocks = 100});
  EXPECT_EQ(router.Choose(Prompt(0, 4), 0), 0);
  router.SetTakesRequests(0, false);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(router.Choose(Prompt(0, 4), 0), 1);
  router.SetTakesRequests(1, false);
  EXPECT_EQ(router.Choose(Prompt(0, 4), 0), -1);
  router.SetTakesRequests(0, true);
  EXPECT_EQ(router.Choose(Prompt(0, 4), 0), 0);
  EXPECT_EQ(router.num_open(0), 2);
  EXPECT_EQ(router.num_open(1), 9);
}

// Clients with a prompt each, one of which sends half of all requests.
TEST(ReplicaRouter, KeepsLoadsCloseUnderSkew) {
  ReplicaRouter router({.num_replicas = 4, .cache_blocks = 64});
  std::mt19937 random(1);
  struct Open {
    int32_t replica, priority;
  };
  std::vector<Open> open;
  for (int i = 0; i < 20'000; ++i) {
    if (open.size() >= 48) {
      const size_t ended = random() % open.size();
      router.End(open[ended].replica, open[ended].priority);
      open[ended] = open.back();
      open.pop_back();
    }
    const ContentId client = random() % 2 == 0 ? 0 : 1 + random() % 30;
    const auto priority = static_cast<int32_t>(random() % 3);
    const std::vector<uint64_t> prompt = Prompt(client, 1 + static_cast<int32_t>(random() % 6));
    std::vector<int32_t> loads(4);
    for (const Open& o : open) ++loads[static_cast<size_t>(o.replica)];
    for (int32_t r = 0; r < 4; ++r) ASSERT_EQ(router.num_open(r), loads[static_cast<size_t>(r)]);
    const int32_t chosen = router.Choose(prompt, priority);
    const int32_t fewest = *std::ranges::min_element(loads);
    const int32_t load = loads[static_cast<size_t>(chosen)];
    // Requests of priority 0 count all others.
    if (priority == 0) {
      ASSERT_TRUE(load <= fewest + ReplicaRouter::kMaxExcess || 2 * load <= 3 * fewest) << i;
    }
    open.push_back({chosen, priority});
  }
}

}  // namespace
}  // namespace tokamak
