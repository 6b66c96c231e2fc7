// Several replicas of a model behind the public Engine (data parallelism).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "local/replay_file.h"
#include "local/testing/load_engine.h"
#include "tokamak/engine.h"

namespace tokamak {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

EngineOptions OnReplicas(int32_t replicas, int32_t ranks = 1) {
  EngineOptions options = TinyOptions();
  options.precise = true;
  options.threads = replicas * ranks;
  options.tensor_parallel = ranks;
  options.data_parallel = replicas;
  return options;
}

Request Greedy(std::vector<int32_t> prompt, int32_t max_tokens = 12) {
  Request request;
  request.token_ids = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

// Submits all at once and returns the tokens of each, in order.
std::vector<std::vector<int32_t>> Answers(Engine& engine, const std::vector<Request>& requests) {
  std::vector<OutputStream> streams;
  for (const Request& request : requests) {
    Result<OutputStream> stream = engine.Stream(request);
    EXPECT_TRUE(stream.ok()) << stream.status().ToString();
    streams.push_back(*std::move(stream));
  }
  std::vector<std::vector<int32_t>> answers;
  for (OutputStream& stream : streams) {
    std::vector<int32_t>& tokens = answers.emplace_back();
    while (const std::optional<OutputChunk> chunk = stream.Next()) {
      EXPECT_TRUE(chunk->error.ok()) << chunk->error.ToString();
      tokens.insert(tokens.end(), chunk->token_ids.begin(), chunk->token_ids.end());
    }
  }
  return answers;
}

std::vector<Request> ManyRequests() {
  std::vector<Request> requests;
  for (int32_t i = 0; i < 12; ++i) {
    std::vector<int32_t> prompt;
    for (int32_t j = 0; j < 20 + 3 * i; ++j) prompt.push_back((i * 31 + j * 7) % 100 + 1);
    requests.push_back(Greedy(prompt));
    if (i % 3 == 0) {
      requests.back().sampling.temperature = 1;
      requests.back().sampling.seed = static_cast<uint64_t>(i);
    }
    requests.back().client = i % 2 == 0 ? "a" : "b";
  }
  return requests;
}

// Waits until so many requests are counted, which is after their last chunk. Returns how many each
// replica had.
std::vector<int64_t> RequestsOf(const Engine& engine, int64_t total) {
  const auto count = [](const EngineStats& stats) {
    return stats.ended_requests[static_cast<size_t>(FinishReason::kLength)];
  };
  while (count(engine.stats()) < total) std::this_thread::yield();
  std::vector<int64_t> ended;
  for (const EngineStats& stats : engine.replica_stats()) ended.push_back(count(stats));
  return ended;
}

TEST(ReplicasOfAnEngine, AnswerAsOneDoes) {
  const auto one = Load(OnReplicas(1));
  ASSERT_NE(one, nullptr);
  const auto expected = Answers(*one, ManyRequests());
  EXPECT_TRUE(one->stats().ranks.empty());
  for (const int32_t ranks : {1, 2}) {
    const auto two = Load(OnReplicas(2, ranks));
    ASSERT_NE(two, nullptr);
    EXPECT_EQ(Answers(*two, ManyRequests()), expected);
    EXPECT_THAT(RequestsOf(*two, 12), testing::Each(testing::Gt(0)));
    EXPECT_EQ(two->stats().generated_tokens, 12 * 12);
    EXPECT_EQ(two->stats().total_blocks, 2 * one->stats().total_blocks);
    EXPECT_EQ(two->model().threads, 2 * ranks);
    std::vector<RankStats> stats = two->stats().ranks;
    ASSERT_EQ(stats.size(), static_cast<size_t>(2 * ranks));
    for (int32_t i = 0; i < 2 * ranks; ++i) {
      const RankStats& rank = stats[static_cast<size_t>(i)];
      EXPECT_EQ(std::pair(rank.replica, rank.rank), std::pair(i / ranks, i % ranks));
      EXPECT_GE(rank.steps, 12);
      EXPECT_GT(rank.step_seconds, rank.wait_seconds);
      EXPECT_EQ(rank.received_bytes > 0, ranks > 1);
    }
  }
}

// Each on a GPU of its own.
TEST(CudaReplicasOfAnEngine, AnswerAsOneDoes) {
  if (const std::string lack = LackOfGpus(2); !lack.empty()) GTEST_SKIP() << lack;
  std::vector<Request> requests = ManyRequests();
  requests.resize(2);
  std::vector<std::vector<int32_t>> expected;
  for (const int32_t replicas : {1, 2}) {
    EngineOptions options = OnReplicas(replicas);
    options.device = "cuda";
    options.max_seqs = 2;
    options.speculate = Speculation::kOff;
    const auto engine = Load(options);
    ASSERT_NE(engine, nullptr);
    const auto answers = Answers(*engine, requests);
    if (expected.empty()) expected = answers;
    EXPECT_EQ(answers, expected);
    EXPECT_THAT(RequestsOf(*engine, 2), testing::Each(2 / replicas));
  }
}

TEST(ReplicasOfAnEngine, ShareTheMemoryOfTheCache) {
  EngineOptions options = OnReplicas(1);
  options.num_blocks = 0;
  options.kv_cache_bytes = 8 << 20;
  const auto one = Load(options);
  options.data_parallel = 2;
  options.threads = 2;
  const auto two = Load(options);
  ASSERT_TRUE(one != nullptr && two != nullptr);
  EXPECT_NEAR(two->stats().total_blocks, one->stats().total_blocks, 2);
}

TEST(ReplicasOfAnEngine, GetThePromptsWhosePrefixTheyHave) {
  const auto engine = Load(OnReplicas(2));
  ASSERT_NE(engine, nullptr);
  std::vector<int32_t> first(40, 3), second(40, 4);
  Answers(*engine, {Greedy(first), Greedy(second)});
  EXPECT_THAT(RequestsOf(*engine, 2), ElementsAre(1, 1));
  first.push_back(9);
  for (int i = 0; i < 3; ++i) Answers(*engine, {Greedy(first)});
  EXPECT_THAT(RequestsOf(*engine, 5), ElementsAre(4, 1));
  EXPECT_GE(engine->replica_stats()[0].cached_prompt_tokens, 3 * 32);
  EXPECT_EQ(engine->replica_stats()[1].cached_prompt_tokens, 0);
}

TEST(ReplicasOfAnEngine, DrainAndReturn) {
  const auto engine = Load(OnReplicas(2));
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->DrainReplica(2, true).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->DrainReplica(-1, true).code(), StatusCode::kInvalidArgument);
  // What runs there goes on.
  std::vector<OutputStream> running;
  for (int i = 0; i < 2; ++i) running.push_back(*engine->Stream(Greedy({1, 2, 3}, 100)));
  ASSERT_TRUE(engine->DrainReplica(0, true).ok());
  Answers(*engine, ManyRequests());
  for (OutputStream& stream : running) {
    size_t tokens = 0;
    while (const auto chunk = stream.Next()) tokens += chunk->token_ids.size();
    EXPECT_EQ(tokens, 100u);
  }
  EXPECT_THAT(RequestsOf(*engine, 14), ElementsAre(1, 13));
  ASSERT_TRUE(engine->DrainReplica(1, true).ok());
  const Status refused = engine->Generate(Greedy({1})).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("replica"));
  ASSERT_TRUE(engine->DrainReplica(0, false).ok());
  Answers(*engine, {Greedy({1})});
  EXPECT_THAT(RequestsOf(*engine, 15), ElementsAre(2, 13));
}

// Pausing, resuming and cancelling reach the replica that has the request.
TEST(ReplicasOfAnEngine, AreFoundByTheRequestsId) {
  std::vector<std::promise<FinishReason>> ends(4);  // outlives the engine, which calls back
  const auto engine = Load(OnReplicas(2));
  ASSERT_NE(engine, nullptr);
  std::vector<RequestId> ids;
  for (auto& end : ends) {
    const auto id = engine->Submit(Greedy({1, 2, 3}, 100), [&end](const OutputChunk& chunk) {
      if (chunk.finish_reason) end.set_value(*chunk.finish_reason);
    });
    ASSERT_TRUE(id.ok()) << id.status().ToString();
    EXPECT_FALSE(testing::Value(ids, Contains(*id)));
    ids.push_back(*id);
    engine->Pause(*id);
  }
  while (engine->stats().paused < 4) std::this_thread::yield();
  // Two are on each replica.
  engine->Resume(ids[0]);
  engine->Resume(ids[1]);
  engine->Cancel(ids[2]);
  engine->Cancel(ids[3]);
  for (size_t i = 0; i < ends.size(); ++i) {
    std::future<FinishReason> end = ends[i].get_future();
    ASSERT_EQ(end.wait_for(std::chrono::seconds(20)), std::future_status::ready) << i;
    EXPECT_EQ(end.get(), i < 2 ? FinishReason::kLength : FinishReason::kCancelled);
  }
}

TEST(ReplicasOfAnEngine, AreOneInASnapshot) {
  const auto engine = Load(OnReplicas(2));
  ASSERT_NE(engine, nullptr);
  Answers(*engine, ManyRequests());
  EXPECT_THAT(RequestsOf(*engine, 12), testing::Each(testing::Gt(0)));
  std::promise<std::shared_ptr<const EngineSnapshot>> promise;
  engine->Snapshot([&](auto snapshot) { promise.set_value(std::move(snapshot)); });
  const auto snapshot = promise.get_future().get();
  EXPECT_EQ(snapshot->requests.size(), 12u);
  EXPECT_TRUE(std::ranges::is_sorted(snapshot->requests, {}, &EngineSnapshot::Request::arrived));
  EXPECT_EQ(snapshot->blocks.total, 128);
  EXPECT_EQ(snapshot->blocks.map.size(), 128u);
  EXPECT_EQ(snapshot->stats.generated_tokens, 144);
  ASSERT_EQ(snapshot->stats.ranks.size(), 2u);
  EXPECT_EQ(snapshot->stats.ranks[1].replica, 1);
  std::set<int32_t> seen;
  int32_t blocks = 0;
  for (const EngineSnapshot::TreeNode& node : snapshot->tree) {
    EXPECT_TRUE(seen.insert(node.id).second) << node.id;
    EXPECT_TRUE(node.parent == -1 || seen.contains(node.parent)) << node.id;
    blocks += node.blocks;
  }
  EXPECT_EQ(blocks, snapshot->num_tree_blocks);
  EXPECT_GT(blocks, 12);
}

TEST(ReplicasOfAnEngine, HaveARecordEach) {
  const std::string path = testing::TempDir() + "replicas.record";
  {
    EngineOptions options = OnReplicas(2);
    options.record_path = path;
    const auto engine = Load(options);
    ASSERT_NE(engine, nullptr);
    Answers(*engine, ManyRequests());
  }
  for (const char* end : {".0", ".1"}) {
    ReplayFileOptions options;
    options.path = path + end;
    options.threads = 1;
    const Result<ReplayFileReport> report = ReplayFile(options);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->counts.requests, 6);
    EXPECT_EQ(report->fingerprint, report->recorded_fingerprint);
    std::filesystem::remove(path + end);
  }
}

TEST(ReplicasOfAnEngine, AreRefusedByName) {
  EngineOptions options = OnReplicas(2);
  options.data_parallel = 0;
  EXPECT_THAT(Engine::Load(options).status().message(), HasSubstr("data_parallel: must be in"));
  options.data_parallel = 2;
  options.threads = 1;
  EXPECT_THAT(Engine::Load(options).status().message(), HasSubstr("threads: 1 are not enough"));
}

}  // namespace
}  // namespace tokamak
