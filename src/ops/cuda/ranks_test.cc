// Tests ranks that each have a GPU of their own. Skips what needs more GPUs than there are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/host/communicator.h"
#include "ops/testing/rank_values.h"

namespace tokamak {
namespace {

using testing::DivisionsOfColumns;
using ::testing::HasSubstr;
using testing::ValuesOfManyMagnitudes;

std::vector<std::unique_ptr<Communicator>> MakeGroup(int32_t size, int32_t stages) {
  constexpr std::chrono::seconds kTimeout(20);
  auto group = MakeThreadGroup(
      {.size = size, .stages = stages, .timeout = kTimeout, .stage_timeout = kTimeout});
  EXPECT_TRUE(group.ok()) << group.status().ToString();
  return *std::move(group);
}

// A rank's backend, with a stream and memory.
class Rank {
 public:
  Rank(std::unique_ptr<Ops> ops, std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)), ops_(std::move(ops)), stream_(ops_->MakeStream()) {}

  Communicator& communicator() { return *communicator_; }
  Ops& ops() { return *ops_; }
  Stream& stream() { return *stream_; }
  int32_t number() const { return ops_->rank().rank; }
  int32_t stage() const { return ops_->rank().stage; }
  template <typename T>
  Buffer Upload(const std::vector<T>& values) {
    Result<Buffer> buffer = ops_->Allocate(values.size() * sizeof(T), MemoryKind::kDevice);
    EXPECT_TRUE(buffer.ok()) << buffer.status().ToString();
    ops_->CopyToDevice(buffer->data(), values.data(), values.size() * sizeof(T), *stream_);
    return *buffer;
  }
  template <typename T>
  std::vector<T> Download(const Buffer& buffer) {
    std::vector<T> values(buffer.size() / sizeof(T));
    ops_->CopyToHost(values.data(), buffer.data(), buffer.size(), *stream_);
    EXPECT_TRUE(ops_->Synchronize(*stream_).ok());
    return values;
  }

 private:
  const std::shared_ptr<Communicator> communicator_;
  const std::unique_ptr<Ops> ops_;
  const std::unique_ptr<Stream> stream_;
};

class CudaRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<std::unique_ptr<Ops>> ops = MakeCudaOps({.threads = 1});
    if (!ops.ok()) GTEST_SKIP() << "no CUDA backend here: " << ops.status().ToString();
    is_emulated_ = (*ops)->name().starts_with(kCudaEmulated);
    while (MakeCudaOps({.device = num_gpus_, .threads = 1}).ok()) ++num_gpus_;
  }

  // Calls run on each of `size` ranks in each stage, which are threads. Does nothing if there are
  // fewer GPUs.
  void OnRanks(int32_t size, const std::function<void(Rank&)>& run, int32_t stages = 1,
               double step_timeout_seconds = 60) {
    const int32_t count = size * stages;
    if (count > num_gpus_) {
      printf("%d ranks: only %d GPUs here\n", count, num_gpus_);
      return;
    }
    std::vector<std::unique_ptr<Communicator>> group = MakeGroup(size, stages);
    std::vector<std::unique_ptr<Rank>> ranks;
    for (int32_t i = 0; i < count; ++i) {  // all on this thread, as when a model is loaded
      const std::shared_ptr<Communicator> communicator = std::move(group[static_cast<size_t>(i)]);
      Result<std::unique_ptr<Ops>> ops = MakeCudaOps({.device = i,
                                                      .threads = 1,
                                                      .step_timeout_seconds = step_timeout_seconds,
                                                      .communicator = communicator});
      ASSERT_TRUE(ops.ok()) << ops.status().ToString();
      ranks.push_back(std::make_unique<Rank>(*std::move(ops), communicator));
    }
    std::vector<std::thread> threads;
    for (const auto& rank : ranks) threads.emplace_back([&] { run(*rank); });
    for (std::thread& thread : threads) thread.join();
  }

  bool is_emulated_ = false;
  int num_gpus_ = 1;
};

Tensor View(const Buffer& buffer, int64_t cols) {
  const auto floats = static_cast<int64_t>(buffer.size() / sizeof(float));
  return Tensor(buffer.data(), DType::kF32, {floats / cols, cols});
}

// The CPU's ranks have the same test, of the same name. The largest sum takes two pieces.
TEST_F(CudaRanks, AllReduceAddsInRankOrderWhateverTheSize) {
  for (const int32_t size : {2, 3, 4}) {
    OnRanks(size, [&](Rank& rank) {
      for (const int64_t count : {1, 2, 3, 4, 64, 1001, 1024, 2'100'001}) {
        std::vector<float> expected = ValuesOfManyMagnitudes(count, 0);
        for (int32_t other = 1; other < size; ++other) {
          const std::vector<float> values =
              ValuesOfManyMagnitudes(count, static_cast<uint32_t>(other));
          for (size_t i = 0; i < values.size(); ++i) expected[i] += values[i];
        }
        const Buffer x =
            rank.Upload(ValuesOfManyMagnitudes(count, static_cast<uint32_t>(rank.number())));
        rank.ops().Run(AllReduce{View(x, 1)}, rank.stream());
        EXPECT_EQ(rank.Download<float>(x), expected) << count;
      }
    });
  }
}

TEST_F(CudaRanks, AllReduceKeepsNanAndInfinity) {
  OnRanks(2, [](Rank& rank) {
    const bool first = rank.number() == 0;
    const Buffer x = rank.Upload<float>({1, first ? NAN : 1, first ? 2 : INFINITY});
    rank.ops().Run(AllReduce{View(x, 3)}, rank.stream());
    const std::vector<float> sum = rank.Download<float>(x);
    EXPECT_EQ(sum[0], 2);
    EXPECT_TRUE(std::isnan(sum[1]));
    EXPECT_EQ(sum[2], INFINITY);
  });
}

TEST_F(CudaRanks, AllGatherPutsEachRanksColumnsWhereTheyBelong) {
  for (const std::vector<IndexRange>& columns : DivisionsOfColumns()) {
    int64_t cols = 0;
    for (const IndexRange& range : columns) cols = std::max(cols, range.end);
    OnRanks(static_cast<int32_t>(columns.size()), [&](Rank& rank) {
      const IndexRange& own = columns[static_cast<size_t>(rank.number())];
      for (const int64_t rows : {0, 1, 3, 20}) {
        const std::vector<float> expected = ValuesOfManyMagnitudes(rows * cols, 7);
        const Buffer whole = rank.Upload(expected);
        const Buffer out = rank.Upload(std::vector<float>(expected.size(), NAN));
        const Tensor x = View(whole, cols).Cols(own.begin, own.end);
        rank.ops().Run(AllGather{x, View(out, cols), columns}, rank.stream());
        EXPECT_EQ(rank.Download<float>(out), expected);
      }
    });
  }
}

// Queries and keys that are normalized over all heads are bf16.
TEST_F(CudaRanks, AllGatherTakesBf16) {
  const std::vector<IndexRange> columns = {{0, 6}, {6, 16}};
  OnRanks(2, [&](Rank& rank) {
    std::vector<uint16_t> expected(3 * 16);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<uint16_t>(0x3f80 + i);
    const IndexRange& own = columns[static_cast<size_t>(rank.number())];
    const Buffer whole = rank.Upload(expected);
    const Buffer out = rank.Upload(std::vector<uint16_t>(expected.size(), 0x7fc0));
    const Tensor x = Tensor(whole.data(), DType::kBF16, {3, 16}).Cols(own.begin, own.end);
    rank.ops().Run(AllGather{x, Tensor(out.data(), DType::kBF16, {3, 16}), columns}, rank.stream());
    EXPECT_EQ(rank.Download<uint16_t>(out), expected);
  });
}

// More elements than a rank hands over at once: the pieces end inside of rows.
TEST_F(CudaRanks, AllGatherOfManyRowsTakesSeveralPieces) {
  const std::vector<IndexRange> columns = {{0, 1000}, {1000, 1900}};
  OnRanks(2, [&](Rank& rank) {
    const int64_t cols = 1900, rows = 2200;
    const IndexRange& own = columns[static_cast<size_t>(rank.number())];
    const std::vector<float> expected = ValuesOfManyMagnitudes(rows * cols, 7);
    const Buffer whole = rank.Upload(expected);
    const Buffer out = rank.Upload(std::vector<float>(expected.size(), NAN));
    rank.ops().Run(AllGather{View(whole, cols).Cols(own.begin, own.end), View(out, cols), columns},
                   rank.stream());
    EXPECT_EQ(rank.Download<float>(out), expected);
  });
}

// A graph with exchanges is launched on each rank at its own time.
TEST_F(CudaRanks, AGraphExchangesAtEveryLaunch) {
  const std::vector<IndexRange> columns = {{0, 5}, {5, 8}};
  OnRanks(2, [&](Rank& rank) {
    const Buffer x = rank.Upload(std::vector<float>(8, 1));
    const Buffer out = rank.Upload(std::vector<float>(8, NAN));
    const IndexRange& own = columns[static_cast<size_t>(rank.number())];
    const auto run = [&] {
      rank.ops().Run(AllReduce{View(x, 8)}, rank.stream());
      rank.ops().Run(AllGather{View(x, 8).Cols(own.begin, own.end), View(out, 8), columns},
                     rank.stream());
    };
    run();  // connects the ranks
    Result<std::unique_ptr<Graph>> graph = rank.ops().Capture(rank.stream(), run);
    ASSERT_TRUE(graph.ok()) << graph.status().ToString();
    std::mt19937 random(static_cast<uint32_t>(rank.number()));
    for (int i = 0; i < 5; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 3));
      rank.ops().Launch(**graph, rank.stream());
    }
    EXPECT_EQ(rank.Download<float>(out), std::vector<float>(8, 64));
  });
}

// The other rank's GPU waits for an exchange to which this rank does not come.
TEST_F(CudaRanks, ARankThatFailsEndsTheWaitingOfTheOthers) {
  std::barrier both(2);
  OnRanks(2, [&](Rank& rank) {
    const Buffer x = rank.Upload(std::vector<float>(8, 1));
    rank.ops().Run(AllReduce{View(x, 8)}, rank.stream());
    EXPECT_TRUE(rank.ops().Synchronize(rank.stream()).ok());
    both.arrive_and_wait();
    if (rank.number() == 0) {
      rank.communicator().Abort(Internal("the test ends it"));
    } else {
      rank.ops().Run(AllReduce{View(x, 8)}, rank.stream());
    }
    const std::unique_ptr<Event> event = rank.ops().MakeEvent();
    rank.ops().Record(*event, rank.stream());
    while (!rank.ops().Reached(*event)) std::this_thread::yield();
    // Rank 0 waits for nothing, but its next exchange finds the error.
    rank.ops().Run(AllReduce{View(x, 8)}, rank.stream());
    EXPECT_THAT(rank.ops().Synchronize(rank.stream()).ToString(),
                HasSubstr("rank 0: the test ends it"));
  });
}

// NCCL reports the error; here, because the ranks' sums have different sizes.
TEST_F(CudaRanks, AnErrorOfNcclEndsTheGroup) {
  if (!is_emulated_) GTEST_SKIP() << "a GPU's NCCL does not compare the ranks' sizes";
  OnRanks(2, [&](Rank& rank) {
    const Buffer x = rank.Upload(std::vector<float>(8, 1));
    const int64_t cols = rank.number() == 0 ? 8 : 4;
    rank.ops().Run(AllReduce{Tensor(x.data(), DType::kF32, {1, cols})}, rank.stream());
    EXPECT_THAT(rank.ops().Synchronize(rank.stream()).ToString(), HasSubstr("NCCL: invalid usage"));
  });
}

// All sends are in the stream before the next stage takes the first: no host waits for them.
TEST_F(CudaRanks, StagesHandOnTensorsInOrder) {
  const std::vector<int64_t> counts = {1, 1001, 4, 2'100'001, 3, 64};
  for (const auto& layout : {std::pair(1, 2), std::pair(1, 3), std::pair(2, 2)}) {
    const int32_t size = layout.first, stages = layout.second;
    std::barrier all(size * stages);
    const auto run = [&, last = stages - 1](Rank& rank) {
      const auto values = [&](size_t i) {
        return ValuesOfManyMagnitudes(counts[i], static_cast<uint32_t>(rank.number() * 100 + i));
      };
      const auto receive = [&](const Buffer& to) {
        rank.ops().Run(Receive{View(to, 1), rank.stage() - 1}, rank.stream());
      };
      const auto send = [&](const Buffer& from) {
        rank.ops().Run(Send{View(from, 1), rank.stage() + 1}, rank.stream());
      };
      const Buffer one = rank.Upload(std::vector<float>(1, 5));
      if (rank.stage() > 0) receive(one);  // connects the stages
      if (rank.stage() < last) send(one);
      std::vector<Buffer> tensors;
      for (size_t i = 0; i < counts.size(); ++i) {
        tensors.push_back(
            rank.Upload(rank.stage() == 0 ? values(i) : std::vector<float>(values(i).size(), NAN)));
      }
      for (int32_t stage = 0; stage <= last; ++stage) {
        for (const Buffer& tensor : tensors) {
          if (rank.stage() == stage && stage > 0) receive(tensor);
          if (rank.stage() == stage && stage < last) send(tensor);
          if (rank.stage() == stage && size > 1) {  // sums of a stage between them
            rank.ops().Run(AllReduce{View(one, 1)}, rank.stream());
          }
        }
        all.arrive_and_wait();
      }
      for (size_t i = 0; i < counts.size(); ++i) {
        EXPECT_EQ(rank.Download<float>(tensors[i]), values(i)) << i;
      }
    };
    OnRanks(size, run, stages);
  }
}

// Tokens, which the host knows, go from the last stage to the others without the streams.
TEST_F(CudaRanks, TheLastStageSendsTokensOfTheHost) {
  constexpr int32_t kStages = 2;
  OnRanks(
      1,
      [&](Rank& rank) {
        Result<Buffer> memory = rank.ops().Allocate(3 * sizeof(int32_t), MemoryKind::kHostPinned);
        ASSERT_TRUE(memory.ok()) << memory.status().ToString();
        const std::span tokens(reinterpret_cast<int32_t*>(memory->data()), 3);
        std::fill(tokens.begin(), tokens.end(), 100 + rank.stage());
        const Tensor view(tokens.data(), DType::kI32, Shape{3});
        if (rank.stage() == 1) {
          rank.ops().Run(Send{view, 0}, rank.stream());
        } else {
          rank.ops().Run(Receive{view, 1}, rank.stream());
        }
        EXPECT_THAT(tokens, ::testing::Each(101));
      },
      kStages);
}

// The stage's GPU waits for what does not come, and the stage before it on the host for its tokens.
TEST_F(CudaRanks, AStageThatNeverSendsEndsTheGroup) {
  const auto run = [&](Rank& rank) {
    const Buffer x = rank.Upload(std::vector<float>(8, 1));
    if (rank.stage() == 0) {
      rank.ops().Run(Send{View(x, 8), 1}, rank.stream());
      rank.ops().Run(Receive{View(x, 8), 1}, rank.stream());
    } else {
      for (int i = 0; i < 2; ++i) rank.ops().Run(Receive{View(x, 8), 0}, rank.stream());
    }
    EXPECT_THAT(rank.ops().Synchronize(rank.stream()).ToString(),
                HasSubstr("rank 1: CUDA: the device did not finish its work within 0.5 s"));
  };
  OnRanks(1, run, /*stages=*/2, /*step_timeout_seconds=*/0.5);
}

TEST_F(CudaRanks, StagesThatExchangeDifferentSizesEndTheGroup) {
  if (!is_emulated_) GTEST_SKIP() << "a GPU's NCCL does not compare the stages' sizes";
  const auto run = [&](Rank& rank) {
    const Buffer x = rank.Upload(std::vector<float>(8, 1));
    if (rank.stage() == 0) {
      rank.ops().Run(Send{View(x, 8), 1}, rank.stream());
    } else {
      rank.ops().Run(Receive{View(x, 1).Rows(0, 7), 0}, rank.stream());
    }
    EXPECT_THAT(rank.ops().Synchronize(rank.stream()).ToString(), HasSubstr("NCCL: invalid usage"));
  };
  OnRanks(1, run, /*stages=*/2);
}

TEST_F(CudaRanks, TooFewGpusAreRefused) {
  EXPECT_TRUE(MakeCudaOps({.num_devices = num_gpus_, .threads = 1}).ok());
  const Status status = MakeCudaOps({.num_devices = num_gpus_ + 1, .threads = 1}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.ToString(),
              HasSubstr(fmt::format("devices 0 to {0} were asked for, one for each rank; {0} are "
                                    "visible, so rank {0} has none",
                                    num_gpus_)));
}

}  // namespace
}  // namespace tokamak
