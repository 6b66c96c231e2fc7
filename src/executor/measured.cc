#include "executor/measured.h"

#include <atomic>
#include <chrono>
#include <type_traits>
#include <utility>

namespace tokamak {
namespace {

// Owned by its rank's thread, which alone writes the counts.
class MeasuredRank final : public Executor {
 public:
  MeasuredRank(std::unique_ptr<Executor> executor, std::shared_ptr<const Communicator> communicator)
      : executor_(std::move(executor)),
        communicator_(std::move(communicator)),
        info_(communicator_ != nullptr ? communicator_->info() : RankInfo()) {}

  const ExecutorLimits& limits() const override { return executor_->limits(); }
  Status Submit(StepInput step) override {
    steps_.store(steps_.load(kRelaxed) + 1, kRelaxed);
    return Measure([&] { return executor_->Submit(std::move(step)); });
  }
  Status Sample(uint64_t number) override {
    return Measure([&] { return executor_->Sample(number); });
  }
  Status SampleMasked(uint64_t number, std::vector<TokenMask> masks) override {
    return Measure([&] { return executor_->SampleMasked(number, std::move(masks)); });
  }
  bool Done(uint64_t number) override {
    return Measure([&] { return executor_->Done(number); });
  }
  Result<StepOutput> Wait(uint64_t number) override {
    return Measure([&] { return executor_->Wait(number); });
  }
  Status Reset() override { return executor_->Reset(); }
  std::vector<RankStats> rank_stats() const override {
    RankStats stats{.stage = info_.stage, .rank = info_.stage * info_.size + info_.rank};
    stats.steps = steps_.load(kRelaxed);
    stats.wait_seconds = static_cast<double>(waited_.load(kRelaxed)) / 1e9;
    stats.step_seconds = static_cast<double>(in_steps_.load(kRelaxed)) / 1e9;
    stats.received_bytes = received_bytes_.load(kRelaxed);
    return {stats};
  }

 private:
  static constexpr std::memory_order kRelaxed = std::memory_order_relaxed;

  template <typename Call>
  std::invoke_result_t<Call> Measure(Call call) {
    const auto start = std::chrono::steady_clock::now();
    std::invoke_result_t<Call> result = call();
    const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - start;
    in_steps_.store(in_steps_.load(kRelaxed) + spent.count(), kRelaxed);
    if (communicator_ != nullptr) {
      const ExchangeCosts costs = communicator_->costs();
      waited_.store(costs.waited.count(), kRelaxed);
      received_bytes_.store(costs.received_bytes, kRelaxed);
    }
    return result;
  }

  const std::unique_ptr<Executor> executor_;
  const std::shared_ptr<const Communicator> communicator_;
  const RankInfo info_;
  std::atomic<int64_t> steps_{0};
  std::atomic<int64_t> in_steps_{0};  // nanoseconds
  std::atomic<int64_t> waited_{0};    // of these
  std::atomic<int64_t> received_bytes_{0};
};

}  // namespace

std::unique_ptr<Executor> MeasureRank(std::unique_ptr<Executor> executor,
                                      std::shared_ptr<const Communicator> communicator) {
  return std::make_unique<MeasuredRank>(std::move(executor), std::move(communicator));
}

}  // namespace tokamak
