// A rank for tests of what drives ranks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "executor/executor.h"
#include "ops/collectives.h"
#include "ops/host/communicator.h"

namespace tokamak {

// Draws a token that depends on the step's and on what all ranks exchange in Submit.
struct FakeRank final : Executor {
  explicit FakeRank(std::shared_ptr<Communicator> communicator)
      : communicator(std::move(communicator)) {
    fixed.vocab_size = 1000;
    fixed.max_seqs = 4;
    fixed.cache.num_device_blocks = 8;
    fixed.cache.block_bytes = 100 + this->communicator->info().rank;
  }

  const ExecutorLimits& limits() const override { return fixed; }
  Status Submit(StepInput step) override {
    calls += "s" + std::to_string(step.number);
    thread = std::this_thread::get_id();
    std::this_thread::sleep_for(delay);
    if (step.number == fail_at) return ResourceExhausted("the fake has enough");
    float sum = static_cast<float>(step.number);
    RETURN_IF_ERROR(communicator->Run(AllReduce{Tensor(&sum, DType::kF32, {1, 1})}));
    drawn[step.number] = static_cast<TokenId>(sum) + difference;
    return Status();
  }
  Status Sample(uint64_t number) override {
    calls += "S" + std::to_string(number);
    return Status();
  }
  Status SampleMasked(uint64_t number, std::vector<TokenMask> masks) override {
    calls += "M" + std::to_string(number) + "/" + std::to_string(masks.size());
    return Status();
  }
  bool Done(uint64_t number) override {
    const RankInfo place = communicator->info();
    if (place.stage < place.stages - 1) return broken;  // the draws are still to come
    calls += "D" + std::to_string(number);
    return done();
  }
  Result<StepOutput> Wait(uint64_t number) override {
    calls += "W" + std::to_string(number);
    RETURN_IF_ERROR(communicator->status());
    if (broken) return Internal("the fake's device is broken");
    RowOutput row;
    row.slot = 1;
    row.tokens = {drawn[number]};
    return StepOutput{.number = number, .rows = {row}};
  }
  Status Reset() override {
    calls += "R";
    fail_at = UINT64_MAX;
    return Status();
  }
  std::vector<RankStats> rank_stats() const override { return stats; }

  const std::shared_ptr<Communicator> communicator;
  ExecutorLimits fixed;
  uint64_t fail_at = UINT64_MAX;
  TokenId difference = 0;
  std::function<bool()> done = [] { return true; };  // whether the device has done the step
  std::atomic<bool> broken = false;
  std::chrono::milliseconds delay{0};  // how long it computes before it exchanges
  std::vector<RankStats> stats;
  std::map<uint64_t, TokenId> drawn;  // by step
  std::string calls;
  std::thread::id thread;
};

}  // namespace tokamak
