#include "ops/host/communicator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>

#include "base/testing/sanitizers.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/reference/reference_ops.h"
#include "ops/testing/memory_source.h"
#include "ops/testing/rank_values.h"

namespace tokamak {
namespace {

using Group = std::vector<std::unique_ptr<Communicator>>;
using std::chrono::milliseconds;
using testing::DivisionsOfColumns;
using testing::ValuesOfManyMagnitudes;
constexpr milliseconds kLong{20'000}, kShort{100};

Group MakeGroup(int32_t size, size_t slot_bytes = 64, milliseconds timeout = kLong) {
  auto group = MakeThreadGroup({.size = size, .slot_bytes = slot_bytes, .timeout = timeout});
  EXPECT_TRUE(group.ok()) << group.status().ToString();
  return *std::move(group);
}

void OnEachRank(const Group& group, const std::function<void(Communicator& ranks, int32_t)>& run) {
  std::vector<std::thread> threads;
  for (const auto& communicator : group) {
    threads.emplace_back([&] { run(*communicator, communicator->info().rank); });
  }
  for (std::thread& thread : threads) thread.join();
}

Tensor View(std::vector<float>& values, int64_t cols) {
  return Tensor(values.data(), DType::kF32, {static_cast<int64_t>(values.size()) / cols, cols});
}

TEST(Ranks, AllReduceAddsInRankOrderWhateverTheSize) {
  for (const int32_t size : {1, 2, 3, 5}) {
    const Group group = MakeGroup(size);
    for (const int64_t count : {1, 2, 15, 16, 17, 64, 1001}) {  // a slot holds 16
      std::vector<std::vector<float>> values;
      for (int32_t rank = 0; rank < size; ++rank) {
        values.push_back(ValuesOfManyMagnitudes(count, static_cast<uint32_t>(rank)));
      }
      std::vector<float> expected = values[0];
      for (size_t rank = 1; rank < values.size(); ++rank) {
        for (size_t i = 0; i < expected.size(); ++i) expected[i] += values[rank][i];
      }
      OnEachRank(group, [&](Communicator& ranks, int32_t rank) {
        ASSERT_TRUE(ranks.Run(AllReduce{View(values[static_cast<size_t>(rank)], 1)}).ok());
      });
      for (const std::vector<float>& sum : values) EXPECT_EQ(sum, expected);
    }
  }
}

// A sum in another order would differ: the test above can fail.
TEST(Ranks, TheOrderOfAdditionsMatters) {
  const std::vector<float> a = ValuesOfManyMagnitudes(1001, 0), b = ValuesOfManyMagnitudes(1001, 1);
  const std::vector<float> c = ValuesOfManyMagnitudes(1001, 2);
  int differ = 0;
  for (size_t i = 0; i < a.size(); ++i) differ += (a[i] + b[i]) + c[i] != (c[i] + b[i]) + a[i];
  EXPECT_GT(differ, 100);
}

TEST(Ranks, AllReduceKeepsNanAndInfinity) {
  const Group group = MakeGroup(2);
  OnEachRank(group, [&](Communicator& ranks, int32_t rank) {
    std::vector<float> x = {1, rank == 0 ? NAN : 1, rank == 1 ? INFINITY : 2};
    ASSERT_TRUE(ranks.Run(AllReduce{View(x, 3)}).ok());
    EXPECT_EQ(x[0], 2);
    EXPECT_TRUE(std::isnan(x[1]));
    EXPECT_EQ(x[2], INFINITY);
  });
}

TEST(Ranks, AllGatherPutsEachRanksColumnsWhereTheyBelong) {
  for (const std::vector<IndexRange>& columns : DivisionsOfColumns()) {
    int64_t cols = 0;
    for (const IndexRange& range : columns) cols = std::max(cols, range.end);
    const Group group = MakeGroup(static_cast<int32_t>(columns.size()));
    for (const int64_t rows : {0, 1, 3, 20}) {
      const std::vector<float> expected = ValuesOfManyMagnitudes(rows * cols, 7);
      OnEachRank(group, [&](Communicator& ranks, int32_t rank) {
        const IndexRange& own = columns[static_cast<size_t>(rank)];
        std::vector<float> whole = expected, out(expected.size(), NAN);
        const Tensor x = View(whole, cols).Cols(own.begin, own.end);
        ASSERT_TRUE(ranks.Run(AllGather{x, View(out, cols), columns}).ok());
        EXPECT_EQ(out, expected);
      });
    }
  }
}

// Ranks that meet at different times, many times, in exchanges of all sizes.
TEST(Ranks, ManyExchangesStayInOrder) {
  const int32_t size = 4;
  const Group group = MakeGroup(size, 256);
  const int count = testing::Fewer(5000);
  OnEachRank(group, [&](Communicator& ranks, int32_t rank) {
    std::mt19937 shared(1), own(static_cast<uint32_t>(rank));
    for (int i = 0; i < count; ++i) {
      if (own() % 16 == 0) std::this_thread::yield();
      if (own() % 1024 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const auto elements = static_cast<int64_t>(1 + shared() % 200);
      const auto base = static_cast<float>(shared() % 1024);
      if (shared() % 2 == 0) {
        std::vector<float> x(static_cast<size_t>(elements), base + static_cast<float>(rank));
        ASSERT_TRUE(ranks.Run(AllReduce{View(x, elements)}).ok());
        ASSERT_EQ(x, std::vector<float>(x.size(), 4 * base + 6));
      } else {
        std::vector<IndexRange> columns;
        for (int64_t r = 0; r < size; ++r) columns.push_back({r * elements, (r + 1) * elements});
        std::vector<float> x(static_cast<size_t>(elements), base + static_cast<float>(rank));
        std::vector<float> out(static_cast<size_t>(size * elements));
        ASSERT_TRUE(
            ranks.Run(AllGather{View(x, elements), View(out, size * elements), columns}).ok());
        for (size_t j = 0; j < out.size(); ++j) {
          ASSERT_EQ(out[j], base + static_cast<float>(j / static_cast<size_t>(elements)));
        }
      }
    }
  });
}

TEST(Ranks, ARankThatDoesNotComeEndsTheGroup) {
  const Group group = MakeGroup(3, 64, kShort);
  OnEachRank(group, [&](Communicator& ranks, int32_t rank) {
    std::vector<float> x(1000, 1);
    if (rank == 1) return;
    const Status status = ranks.Run(AllReduce{View(x, 1000)});
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    const std::string_view message = status.message();
    EXPECT_TRUE(message == "rank 1 did not take part in an exchange with rank 0 within 100 ms" ||
                message == "rank 1 did not take part in an exchange with rank 2 within 100 ms")
        << message;
  });
  // It gets the same error when it comes.
  std::vector<float> x(1);
  EXPECT_EQ(group[1]->Run(AllReduce{View(x, 1)}).ToString(), group[0]->status().ToString());
  const std::vector<IndexRange> columns = {{0, 1}, {0, 1}, {0, 1}};
  EXPECT_FALSE(group[1]->Run(AllGather{View(x, 1), View(x, 1), columns}).ok());
}

// The others wait for it, asleep, and return long before their own limit.
TEST(Ranks, ARankThatGivesUpEndsTheGroupAtOnce) {
  const Group group = MakeGroup(3);
  const auto start = std::chrono::steady_clock::now();
  OnEachRank(group, [&](Communicator& ranks, int32_t rank) {
    std::vector<float> x(100, 1);
    if (rank == 2) {
      std::this_thread::sleep_for(kShort);
      ranks.Abort(Status(StatusCode::kResourceExhausted, "out of blocks"));
      ranks.Abort(Status(StatusCode::kInternal, "a second reason"));  // too late
    }
    const Status status = ranks.Run(AllReduce{View(x, 100)});
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(status.message(), "rank 2: out of blocks");
    EXPECT_EQ(ranks.status().ToString(), status.ToString());
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLong / 2);
}

TEST(Ranks, AGroupCanStartAgain) {
  const Group group = MakeGroup(3);
  const auto sum = [&](float expected) {
    OnEachRank(group, [&](Communicator& ranks, int32_t rank) {
      std::vector<float> x(100, static_cast<float>(rank));
      const Status status = ranks.Run(AllReduce{View(x, 100)});
      EXPECT_EQ(status.ok(), expected > 0) << status.ToString();
      if (status.ok()) {
        EXPECT_EQ(x, std::vector<float>(100, expected));
      }
    });
  };
  sum(3);
  group[1]->Abort(Status(StatusCode::kInternal, "a long reason, of which nothing stays"));
  sum(0);
  for (const auto& communicator : group) communicator->Restart();
  sum(3);
  group[2]->Abort(Status(StatusCode::kInternal, "short"));
  EXPECT_EQ(group[0]->status().message(), "rank 2: short");
}

TEST(Ranks, LongReasonsAreCut) {
  const Group group = MakeGroup(2);
  group[0]->Abort(Status(StatusCode::kInternal, std::string(1000, 'x')));
  const std::string message(group[1]->status().message());
  EXPECT_TRUE(message.starts_with("rank 0: xxx"));
  EXPECT_LT(message.size(), 300u);
}

TEST(Ranks, DifferentExchangesAreAnError) {
  const Group group = MakeGroup(2);
  OnEachRank(group, [&](Communicator& ranks, int32_t rank) {
    std::vector<float> x(8, 1);
    const Status status = ranks.Run(AllReduce{View(x, 1).Rows(0, rank == 0 ? 8 : 7)});
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_TRUE(status.message().ends_with("take part in different exchanges"))
        << status.ToString();
  });
}

TEST(Ranks, GroupsOfBadSizesAreRefused) {
  for (const int32_t size : {-1, 0, kMaxHostRanks + 1}) {
    const auto group = MakeThreadGroup({.size = size});
    EXPECT_EQ(group.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(MakeThreadGroup({.stages = size}).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(MakeThreadGroup({.size = 8, .stages = kMaxHostRanks / 8 + 1}).ok());
}

Group MakeStages(int32_t size, int32_t stages, size_t channel_bytes, milliseconds timeout = kLong) {
  auto group = MakeThreadGroup({.size = size,
                                .stages = stages,
                                .slot_bytes = 64,
                                .channel_bytes = channel_bytes,
                                .draws_bytes = channel_bytes,
                                .timeout = timeout,
                                .stage_timeout = timeout});
  EXPECT_TRUE(group.ok()) << group.status().ToString();
  return *std::move(group);
}

TEST(RankStages, RanksAreNumberedStageByStage) {
  const Group group = MakeStages(2, 3, 64);
  ASSERT_EQ(group.size(), 6u);
  for (int32_t i = 0; i < 6; ++i) {
    const RankInfo info = group[static_cast<size_t>(i)]->info();
    EXPECT_EQ(info.size, 2);
    EXPECT_EQ(info.stages, 3);
    EXPECT_EQ(info.rank, i % 2);
    EXPECT_EQ(info.stage, i / 2);
  }
}

// Values go forward from stage to stage and come back from the last one, beside sums of each stage.
// Messages are smaller and larger than what a channel holds, and than what is left of it.
TEST(RankStages, ValuesArriveInOrder) {
  constexpr int32_t kSize = 2, kStages = 3;
  for (const size_t channel_bytes : {12, 100, 4096}) {
    const Group group = MakeStages(kSize, kStages, channel_bytes);
    const int count = testing::Fewer(500);
    std::vector<std::thread> threads;
    for (const auto& communicator : group) {
      threads.emplace_back([&, &ranks = *communicator] {
        const RankInfo info = ranks.info();
        std::mt19937 shared(1), own(static_cast<uint32_t>(info.stage * kSize + info.rank));
        for (int i = 0; i < count; ++i) {
          const auto elements = static_cast<int64_t>(1 + shared() % 40);
          if (own() % 64 == 0) std::this_thread::sleep_for(milliseconds(1));
          const auto value = [&](int32_t rank, int64_t at) {
            return static_cast<float>(i * 64 + rank * 8) + static_cast<float>(at) / 64;
          };
          std::vector<float> x(static_cast<size_t>(elements));
          for (int64_t at = 0; at < elements; ++at)
            x[static_cast<size_t>(at)] = value(info.rank, at);
          const std::vector<float> expected = x;
          if (info.stage > 0) {
            std::fill(x.begin(), x.end(), NAN);
            ASSERT_TRUE(ranks.Run(Receive{View(x, elements), info.stage - 1}).ok());
            ASSERT_EQ(x, expected);
          }
          float sum = 1;
          ASSERT_TRUE(ranks.Run(AllReduce{Tensor(&sum, DType::kF32, {1, 1})}).ok());
          ASSERT_EQ(sum, kSize);
          if (info.stage + 1 < kStages) {
            ASSERT_TRUE(ranks.Run(Send{View(x, elements), info.stage + 1}).ok());
          }
          std::vector<int32_t> drawn = {i, info.rank};
          const Tensor tokens(drawn.data(), DType::kI32, {2});
          if (info.stage + 1 == kStages) {
            for (int32_t stage = 0; stage + 1 < kStages; ++stage) {
              ASSERT_TRUE(ranks.Run(Send{tokens, stage}).ok());
            }
          } else {
            drawn = {-1, -1};
            ASSERT_TRUE(ranks.Run(Receive{tokens, kStages - 1}).ok());
            ASSERT_EQ(drawn, (std::vector<int32_t>{i, info.rank}));
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

// A stage may be ahead of the next by what the channel holds, and no further.
TEST(RankStages, ASenderWaitsOnlyForRoom) {
  const Group group = MakeStages(1, 2, 2 * (4 + 2) * sizeof(float), kShort);
  std::vector<float> x(4, 1);
  EXPECT_TRUE(group[0]->Run(Send{View(x, 4), 1}).ok());
  EXPECT_TRUE(group[0]->Run(Send{View(x, 4), 1}).ok());
  EXPECT_EQ(group[0]->Run(Send{View(x, 4), 1}).message(),
            "rank 1 did not take part in an exchange with rank 0 within 100 ms");
  for (const auto& communicator : group) communicator->Restart();
  std::vector<float> y(4);
  EXPECT_TRUE(group[0]->Run(Send{View(x, 4), 1}).ok());
  EXPECT_TRUE(group[1]->Run(Receive{View(y, 4), 0}).ok());
  EXPECT_EQ(y, x);
}

TEST(RankStages, AnErrorEndsAllStagesAtOnce) {
  const Group group = MakeStages(2, 3, 64);
  const auto start = std::chrono::steady_clock::now();
  OnEachRank(group, [&](Communicator& ranks, int32_t rank) {
    const RankInfo info = ranks.info();
    if (info.stage == 1 && rank == 0) {
      std::this_thread::sleep_for(kShort);
      ranks.Abort(Status(StatusCode::kResourceExhausted, "out of blocks"));
    }
    std::vector<float> x(100, 1);
    const Status status = info.stage == 0   ? ranks.Run(Receive{View(x, 100), 2})
                          : info.stage == 1 ? ranks.Run(AllReduce{View(x, 100)})
                                            : ranks.Run(Receive{View(x, 100), 1});
    EXPECT_EQ(status.message(), "rank 2: out of blocks");
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLong / 2);
}

TEST(RankStages, MessagesOfOtherSizesAreAnError) {
  const Group group = MakeStages(1, 2, 1024);
  std::vector<float> x(8, 1);
  EXPECT_TRUE(group[0]->Run(Send{View(x, 8), 1}).ok());
  EXPECT_EQ(group[1]->Run(Receive{View(x, 1).Rows(0, 7), 0}).message(),
            "ranks 1 and 0 take part in different exchanges");
  EXPECT_FALSE(group[0]->Run(Send{View(x, 8), 1}).ok());
}

int64_t Floats(int64_t count) { return count * int64_t{sizeof(float)}; }

// Rank 1 comes late to every exchange, when rank 0 is there. It takes 5 columns of 7.
TEST(Ranks, KnowHowLongTheyWaitedAndWhatTheyReceived) {
  const Group group = MakeGroup(2);
  std::atomic<int> ready = 0;
  OnEachRank(group, [&](Communicator& ranks, int32_t rank) {
    for (int round = 1; round <= 5; ++round) {
      if (rank == 0) ready = round;
      while (ready < round) std::this_thread::yield();
      if (rank == 1) std::this_thread::sleep_for(milliseconds(30));
      std::vector<float> x(100, 1), part(rank == 0 ? 6 : 15, 1), out(21);
      ASSERT_TRUE(ranks.Run(AllReduce{View(x, 100)}).ok());  // in several pieces
      const std::vector<IndexRange> columns = {{0, 2}, {2, 7}};
      ASSERT_TRUE(ranks
                      .Run(AllGather{View(part, columns[static_cast<size_t>(rank)].size()),
                                     View(out, 7), columns})
                      .ok());
    }
  });
  const ExchangeCosts early = group[0]->costs(), late = group[1]->costs();
  EXPECT_GT(early.waited, milliseconds(0));
  EXPECT_GT(early.waited, 2 * late.waited);
  EXPECT_EQ(early.received_bytes, 5 * Floats(100 + 15));
  EXPECT_EQ(late.received_bytes, 5 * Floats(100 + 6));
}

TEST(RankStages, KnowWhatTheyReceived) {
  const Group group = MakeStages(1, 2, 1024);
  std::vector<float> x(8, 1), y(8);
  ASSERT_TRUE(group[0]->Run(Send{View(x, 8), 1}).ok());
  ASSERT_TRUE(group[1]->Run(Receive{View(y, 8), 0}).ok());
  EXPECT_EQ(group[0]->costs().received_bytes, 0);
  EXPECT_EQ(group[1]->costs().received_bytes, Floats(8));
  EXPECT_EQ(group[1]->costs().waited, milliseconds(0));  // the values were there
}

// Models and runners see results through Ops, and errors when they wait for a stream.
TEST(Ranks, BackendsExchangeAndReturnTheGroupsError) {
  Group group = MakeGroup(2);
  std::vector<std::unique_ptr<Ops>> backends;
  for (auto& communicator : group) backends.push_back(MakeReferenceOps(std::move(communicator)));
  EXPECT_EQ(MakeReferenceOps()->rank().size, 1);
  const std::vector<IndexRange> columns = {{0, 2}, {2, 3}};
  const auto run = [&](Ops& ops) {
    const auto stream = ops.MakeStream();
    const auto event = ops.MakeEvent();
    const RankInfo info = ops.rank();
    EXPECT_EQ(info.size, 2);
    const auto rank = static_cast<float>(info.rank);
    std::vector<float> sum = {1, rank}, part(info.rank == 0 ? 2 : 1, rank), out(3);
    ops.Run(AllReduce{View(sum, 2)}, *stream);
    ops.Run(AllGather{View(part, static_cast<int64_t>(part.size())), View(out, 3), columns},
            *stream);
    EXPECT_EQ(sum, (std::vector<float>{2, 1}));
    EXPECT_EQ(out, (std::vector<float>{0, 0, 1}));
    EXPECT_TRUE(ops.Synchronize(*stream).ok() && ops.Await(*event).ok());
    ops.Run(AllReduce{View(sum, info.rank + 1).Rows(0, 1)}, *stream);  // a bug
    EXPECT_EQ(ops.Synchronize(*stream).code(), StatusCode::kInternal);
    EXPECT_EQ(ops.Await(*event).code(), StatusCode::kInternal);
  };
  std::thread other([&] { run(*backends[1]); });
  run(*backends[0]);
  other.join();
}

// Rows of tokens that other ranks have are zeros, in whatever memory held before.
TEST(Ranks, EmbedLeavesTheRowsOfOtherShardsZero) {
  constexpr int64_t kVocab = 50, kCols = 32, kFirst = 17, kEnd = 40;
  std::vector<float> table = ValuesOfManyMagnitudes(kVocab * kCols, 3);
  const auto pack = [&](Ops& ops, int64_t begin, int64_t end) {
    const std::vector<float> rows(table.begin() + begin * kCols, table.begin() + end * kCols);
    auto weight = ops.PackWeight(
        {.parts = {MemorySource::Quantize("table", DType::kF32, {end - begin, kCols}, rows)},
         .use = WeightUse::kEmbedding});
    EXPECT_TRUE(weight.ok()) << weight.status().ToString();
    return *std::move(weight);
  };
  for (const bool reference : {true, false}) {
    const std::unique_ptr<Ops> ops =
        reference ? MakeReferenceOps() : *MakeCpuOps({.threads = 2, .isa = "baseline"});
    const auto stream = ops->MakeStream();
    const auto shard = pack(*ops, kFirst, kEnd);
    std::vector<int32_t> ids = {16, 17, 39, 40, 0, 49, 20};
    std::vector<float> out(ids.size() * kCols, NAN);
    ops->Run(Embed{.ids = Tensor(ids.data(), DType::kI32, {7}),
                   .table = shard.get(),
                   .scale = 2,
                   .first_id = kFirst,
                   .vocab_size = kVocab,
                   .out = View(out, kCols)},
             *stream);
    for (size_t i = 0; i < out.size(); ++i) {
      const int64_t id = ids[i / kCols];
      const bool here = kFirst <= id && id < kEnd;
      const size_t source = static_cast<size_t>(id) * kCols + i % kCols;
      EXPECT_EQ(out[i], here ? 2 * table[source] : 0.0f) << id;
    }
  }
}

}  // namespace
}  // namespace tokamak
