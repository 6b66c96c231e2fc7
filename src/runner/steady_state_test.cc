// Proves that steps of known sizes allocate nothing, on the host or the device, and wait only for
// their own event.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <deque>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/check.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"
#include "runner/runner.h"
#include "runner/testing/toy_model.h"

namespace {

thread_local int64_t allocations = 0;  // by this thread, including inside libraries

void* CountedAllocate(size_t bytes, size_t alignment) {
  ++allocations;
  const size_t size = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, size == 0 ? alignment : size);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

// GCC does not see that these pairs match when it inlines only one of the two.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(size_t bytes) { return CountedAllocate(bytes, alignof(std::max_align_t)); }
void* operator new[](size_t bytes) { return CountedAllocate(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return CountedAllocate(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return CountedAllocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace tokamak::testing {
namespace {

constexpr int kWarmUp = 30;
constexpr int kSteps = 200;
constexpr int kMixedEvery = 10;  // steps
constexpr int32_t kSlots = 8;
constexpr int32_t kDraftingSlots = 2;  // the first ones
constexpr int32_t kDrafts = 3;         // of a row
constexpr int32_t kBlockSize = 4;
constexpr int32_t kPrompt = 16;
constexpr int32_t kContext = 256;
constexpr int32_t kBlocksPerSeq = kContext / kBlockSize;

// Steps of one token per slot, and of a few drafts for the first slots. Every tenth step gives the
// last slot to a new sequence, whose prompt makes it a mixed step.
class Schedule {
 public:
  // Of so many steps in flight, one has drafts. In the others, the slots that draft have no rows.
  explicit Schedule(int depth) : depth_(static_cast<uint64_t>(depth)) {}

  // The outputs of all but the last depth - 1 steps must have been noted.
  StepInput Next(uint64_t number) {
    StepInput step{.number = number};
    if (number == 0) {
      for (SequenceSlotId slot = 0; slot < kSlots; ++slot) Admit(slot, 3, &step);
    } else if (number % kMixedEvery == 0) {
      Replace(kSlots - 1, kPrompt, &step);
    }
    for (SequenceSlotId slot = 0; slot < kSlots; ++slot) {
      const bool drafts = slot < kDraftingSlots;
      if (drafts && number % depth_ != 0) continue;
      if (drafts && positions_[static_cast<size_t>(slot)].known + kDrafts >= kContext) {
        Replace(slot, 3, &step);
      }
      AddRow(slot, drafts ? kDrafts : 0, &step);
    }
    return step;
  }

  void Note(const StepOutput& output) {
    for (const RowOutput& row : output.rows) {
      if (row.slot >= kDraftingSlots) continue;
      Position& at = positions_[static_cast<size_t>(row.slot)];
      at.computed -= kDrafts + 1 - static_cast<int32_t>(row.tokens.size());
      at.known = at.computed + 1;
    }
  }

 private:
  struct Position {
    int32_t known = 0, computed = 0, blocks = 0;
  };

  void Replace(SequenceSlotId slot, int32_t prompt, StepInput* step) {
    step->free.push_back(slot);
    Admit(slot, prompt, step);
  }

  void AddRow(SequenceSlotId slot, int32_t num_drafts, StepInput* step) {
    Position& at = positions_[static_cast<size_t>(slot)];
    step->rows.push_back({.slot = slot,
                          .num_tokens = at.known - at.computed + num_drafts,
                          .sample = true,
                          .drafts = std::vector<TokenId>(static_cast<size_t>(num_drafts), 5)});
    at.computed = at.known + num_drafts;
    at.known = at.computed + 1;
    Append(slot, step);
  }

  void Admit(SequenceSlotId slot, int32_t prompt, StepInput* step) {
    positions_[static_cast<size_t>(slot)] = {.known = prompt};
    SamplingParams sampling = {.top_k = 20, .top_p = 0.9f, .seed = 5};
    if (slot % 2 == 0) sampling.temperature = 0;
    step->admit.push_back({.slot = slot,
                           .tokens = std::vector<TokenId>(static_cast<size_t>(prompt), 7 + slot),
                           .num_prompt_tokens = prompt,
                           .sampling = sampling});
  }

  void Append(SequenceSlotId slot, StepInput* step) {
    Position& at = positions_[static_cast<size_t>(slot)];
    for (; at.blocks * kBlockSize < at.computed; ++at.blocks) {
      for (int32_t group = 0; group < 2; ++group) {
        const BlockId block = (slot * 2 + group) * kBlocksPerSeq + at.blocks;
        step->append.push_back({.slot = slot, .group = group, .blocks = {block}});
      }
    }
  }

  const uint64_t depth_;
  std::vector<Position> positions_ = std::vector<Position>(kSlots);
};

// Host allocations by all steps after the warm-up.
struct Allocations {
  int64_t submit = 0;
  int64_t sample = 0;
  int64_t wait = 0;
  int64_t outputs = 0;  // the part of `wait` that is the outputs themselves
};

class Counted {
 public:
  explicit Counted(int64_t* total) : total_(*total), before_(allocations) {}
  ~Counted() { total_ += allocations - before_; }

 private:
  int64_t& total_;
  const int64_t before_;
};

std::unique_ptr<Runner> MakeRunner(const Model& model, Ops& ops, CudaGraphs cuda_graphs,
                                   int depth) {
  auto runner = Runner::Create(model, ops,
                               {.max_seqs = kSlots,
                                .max_step_tokens = 64,
                                .max_step_drafts = kDraftingSlots * kDrafts,
                                .max_context = kContext,
                                .block_size = kBlockSize,
                                .depth = depth,
                                .cuda_graphs = cuda_graphs},
                               {.arena_bytes = 4 << 20,
                                .num_device_blocks = 2 * kSlots * kBlocksPerSeq,
                                .num_host_blocks = 0});
  CHECK_MSG(runner.ok(), runner.status().ToString());
  return *std::move(runner);
}

// Calls `warm` after the warm-up.
template <typename Warm>
Allocations RunSteps(Runner& runner, const Warm& warm) {
  Schedule schedule(runner.shape().depth);
  Allocations counts;
  uint64_t waited = 0;
  const auto wait = [&] {
    Result<StepOutput> output = StepOutput();
    {
      const Counted counted(&counts.wait);
      while (!runner.Done(waited)) {
      }
      output = runner.Wait(waited++);
    }
    CHECK_MSG(output.ok(), output.status().ToString());
    // The rows, and each row's tokens.
    counts.outputs += 1 + static_cast<int64_t>(output->rows.size());
    schedule.Note(*output);
  };
  const auto depth = static_cast<uint64_t>(runner.shape().depth);
  for (uint64_t number = 0; number < kWarmUp + kSteps; ++number) {
    if (number == kWarmUp) {
      warm();
      counts = {};
    }
    StepInput step = schedule.Next(number);
    {
      const Counted counted(&counts.submit);
      CHECK(runner.Submit(std::move(step)).ok());
    }
    {
      const Counted counted(&counts.sample);
      CHECK(runner.Sample(number).ok());
    }
    if (number + 1 - waited >= depth) wait();
  }
  while (waited < kWarmUp + kSteps) wait();
  return counts;
}

// Only the output itself remains: its list of rows, and a list of tokens per row.
void ExpectNone(const Allocations& counts) {
  EXPECT_EQ(counts.submit, 0);
  EXPECT_EQ(counts.sample, 0);
  EXPECT_EQ(counts.wait, counts.outputs);
}

TEST(SteadyState, StepsOnTheCpuDoNotAllocate) {
  const auto ops = *MakeCpuOps({.threads = 1});
  const auto model = MakeToyModel(*ops);
  for (const int depth : {1, 2}) {
    SCOPED_TRACE(fmt::format("depth {}", depth));
    const auto runner = MakeRunner(*model, *ops, CudaGraphs::kOff, depth);
    ExpectNone(RunSteps(*runner, [] {}));
  }
}

class SteadyStateCuda : public ::testing::TestWithParam<CudaGraphs> {};

TEST_P(SteadyStateCuda, StepsDoNotAllocateAndWaitOnlyForTheirEvent) {
  for (const int depth : {1, 2, 4}) {
    SCOPED_TRACE(fmt::format("depth {}", depth));
    CudaCallCounts calls;
    const auto made = MakeCudaOps({.threads = 1, .counts = &calls});
    if (!made.ok()) GTEST_SKIP() << "no CUDA backend here: " << made.status().ToString();
    Ops& ops = **made;
    // Checks that the counters count, including the library's allocations on the host.
    const int64_t before = allocations;
    const auto event = ops.MakeEvent();
    EXPECT_EQ(calls.allocations > 0 && allocations > before, true);
    const auto stream = ops.MakeStream();
    const int64_t waits = calls.synchronizations;
    EXPECT_TRUE(ops.Synchronize(*stream).ok());
    EXPECT_EQ(calls.synchronizations, waits + 1);

    const auto model = MakeToyModel(ops);
    const auto runner = MakeRunner(*model, ops, GetParam(), depth);
    CudaCallCounts warm;
    ExpectNone(RunSteps(*runner, [&] { warm = calls; }));
    EXPECT_EQ(calls.allocations, warm.allocations);
    EXPECT_EQ(calls.synchronizations, warm.synchronizations);
    EXPECT_GT(calls.others - warm.others, 5 * kSteps);
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, SteadyStateCuda,
                         ::testing::Values(CudaGraphs::kOff, CudaGraphs::kOn));

}  // namespace
}  // namespace tokamak::testing
