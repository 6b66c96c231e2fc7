#include "executor/driver.h"

#include <deque>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/mutex.h"
#include "executor/ranks_agree.h"

namespace tokamak {
namespace {

// The calls of an executor, as values.
struct SampleCall {
  uint64_t number = 0;
};
struct SampleMaskedCall {
  uint64_t number = 0;
  std::vector<TokenMask> masks;
};
struct DoneCall {
  uint64_t number = 0;
};
struct WaitCall {
  uint64_t number = 0;
};
struct ResetCall {};
using Call = std::variant<StepInput, SampleCall, SampleMaskedCall, DoneCall, WaitCall, ResetCall>;

// Runs the calls of one rank on a thread of its own, in order. Its methods are for the driver's
// thread.
class Worker {
 public:
  explicit Worker(Rank rank) : rank_(std::move(rank)), thread_([this] { Loop(); }) {}
  ~Worker() {
    Post(std::nullopt);
    thread_.join();
  }

  Communicator& communicator() { return *rank_.communicator; }

  // Nothing ends the thread.
  void Post(std::optional<Call> call) {
    const MutexLock lock(mutex_);
    calls_.push_back(std::move(call));
    changed_.NotifyAll();
  }
  // Waits until all calls have returned. Returns the last output, or the first error since Reset.
  Result<StepOutput> Finish() {
    const MutexLock lock(mutex_);
    while (!calls_.empty()) changed_.Wait(mutex_);
    return output_;
  }

 private:
  void Loop();
  // Without an error, an output only from WaitCall.
  Result<StepOutput> Run(Call call);

  const Rank rank_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::optional<Call>> calls_ GUARDED_BY(mutex_);  // the first one is running
  Result<StepOutput> output_ GUARDED_BY(mutex_) = StepOutput();
  std::thread thread_;
};

void Worker::Loop() {
  for (;;) {
    std::optional<Call> call;
    {
      const MutexLock lock(mutex_);
      while (calls_.empty()) changed_.Wait(mutex_);
      call = std::move(calls_.front());
    }
    if (!call) return;
    const bool reset = std::holds_alternative<ResetCall>(*call);
    const bool wait = std::holds_alternative<WaitCall>(*call);
    Result<StepOutput> result = Run(*std::move(call));
    // The other ranks may be waiting for this one.
    if (!result.ok()) rank_.communicator->Abort(result.status());
    const MutexLock lock(mutex_);
    if (reset || (output_.ok() && (wait || !result.ok()))) output_ = std::move(result);
    calls_.pop_front();
    changed_.NotifyAll();
  }
}

Result<StepOutput> Worker::Run(Call call) {
  Executor& executor = *rank_.executor;
  if (auto* const step = std::get_if<StepInput>(&call)) {
    RETURN_IF_ERROR(executor.Submit(std::move(*step)));
  } else if (const auto* const sample = std::get_if<SampleCall>(&call)) {
    RETURN_IF_ERROR(executor.Sample(sample->number));
  } else if (auto* const masked = std::get_if<SampleMaskedCall>(&call)) {
    RETURN_IF_ERROR(executor.SampleMasked(masked->number, std::move(masked->masks)));
  } else if (const auto* const done = std::get_if<DoneCall>(&call)) {
    executor.Done(done->number);
  } else if (const auto* const wait = std::get_if<WaitCall>(&call)) {
    return executor.Wait(wait->number);
  } else {
    RETURN_IF_ERROR(executor.Reset());
  }
  return StepOutput();
}

class DriverExecutor final : public Executor {
 public:
  DriverExecutor(Rank first, std::vector<std::unique_ptr<Worker>> others,
                 const ExecutorLimits& limits)
      : first_(std::move(first)), others_(std::move(others)), limits_(limits) {}

  const ExecutorLimits& limits() const override { return limits_; }
  Status Submit(StepInput step) override {
    Post(step);
    return Checked(first_.executor->Submit(std::move(step)));
  }
  Status Sample(uint64_t number) override {
    Post(SampleCall{number});
    return Checked(first_.executor->Sample(number));
  }
  Status SampleMasked(uint64_t number, std::vector<TokenMask> masks) override {
    Post(SampleMaskedCall{number, masks});
    return Checked(first_.executor->SampleMasked(number, std::move(masks)));
  }
  // May run the draft model, so all ranks take part.
  bool Done(uint64_t number) override {
    Post(DoneCall{number});
    return first_.executor->Done(number);
  }
  Result<StepOutput> Wait(uint64_t number) override {
    Post(WaitCall{number});
    Result<StepOutput> output = first_.executor->Wait(number);
    RETURN_IF_ERROR(Checked(output.status()));
    for (size_t i = 0; i < others_.size(); ++i) {
      const Result<StepOutput> other = others_[i]->Finish();
      RETURN_IF_ERROR(Checked(other.status()));
      if (SameDraws(*other, *output)) continue;
      return Checked(Internal("rank {} drew other tokens in step {} than rank 0", i + 1, number));
    }
    return output;
  }
  Status Reset() override {
    for (const auto& worker : others_) (void)worker->Finish();
    first_.communicator->Restart();
    for (const auto& worker : others_) worker->communicator().Restart();
    Post(ResetCall{});
    RETURN_IF_ERROR(Checked(first_.executor->Reset()));
    for (const auto& worker : others_) RETURN_IF_ERROR(worker->Finish().status());
    return Status();
  }

 private:
  void Post(const Call& call) {
    for (const auto& worker : others_) worker->Post(call);
  }
  // Ends the others' waiting for rank 0 after an error.
  Status Checked(Status status) {
    if (!status.ok()) first_.communicator->Abort(status);
    return status;
  }

  const Rank first_;
  const std::vector<std::unique_ptr<Worker>> others_;
  const ExecutorLimits limits_;
};

}  // namespace

Result<std::unique_ptr<Executor>> MakeDriverExecutor(std::vector<Rank> ranks) {
  std::vector<ExecutorLimits> limits;
  for (const Rank& rank : ranks) limits.push_back(rank.executor->limits());
  ASSIGN_OR_RETURN(const ExecutorLimits all, JoinLimits(limits));
  std::vector<std::unique_ptr<Worker>> others;
  for (size_t i = 1; i < ranks.size(); ++i) {
    others.push_back(std::make_unique<Worker>(std::move(ranks[i])));
  }
  return std::unique_ptr<Executor>(
      std::make_unique<DriverExecutor>(std::move(ranks[0]), std::move(others), all));
}

}  // namespace tokamak
