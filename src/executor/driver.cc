#include "executor/driver.h"

#include <algorithm>
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
  // `draws`: keeps outputs for Take.
  Worker(Rank rank, bool draws)
      : rank_(std::move(rank)), draws_(draws), thread_([this] { Loop(); }) {}
  ~Worker() {
    Post(std::nullopt);
    thread_.join();
  }

  bool draws() const { return draws_; }
  int32_t stage() const { return rank_.communicator->info().stage; }
  Communicator& communicator() { return *rank_.communicator; }
  // Thread-safe.
  std::vector<RankStats> stats() const { return rank_.executor->rank_stats(); }

  // Nothing ends the thread.
  void Post(std::optional<Call> call) {
    const MutexLock lock(mutex_);
    calls_.push_back(std::move(call));
    changed_.NotifyAll();
  }
  // Waits until all calls have returned. Returns the first error since Reset.
  Status Finish() {
    const MutexLock lock(mutex_);
    while (!calls_.empty()) changed_.Wait(mutex_);
    return error_;
  }
  // Waits for the next output of a WaitCall. Returns the first error since Reset.
  Result<StepOutput> Take() {
    const MutexLock lock(mutex_);
    while (outputs_.empty() && error_.ok()) changed_.Wait(mutex_);
    RETURN_IF_ERROR(error_);
    StepOutput output = std::move(outputs_.front());
    outputs_.pop_front();
    return output;
  }
  // Whether Take would return at once.
  bool HasOutput() {
    const MutexLock lock(mutex_);
    return !outputs_.empty() || !error_.ok();
  }

 private:
  void Loop();
  // Waits for a call and returns it, without removing it. The last stage takes a step's calls ahead
  // of waiting for an earlier step, so that an asynchronous device has something to compute.
  std::optional<Call> Next();
  // Without an error, an output only from WaitCall.
  Result<StepOutput> Run(Call call);

  const Rank rank_;
  const bool draws_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::optional<Call>> calls_ GUARDED_BY(mutex_);  // the first one is running
  std::deque<StepOutput> outputs_ GUARDED_BY(mutex_);
  Status error_ GUARDED_BY(mutex_);  // the first one since Reset
  std::thread thread_;
};

std::optional<Call> Worker::Next() {
  std::optional<uint64_t> early;  // the step that is waited for, if other calls could come first
  {
    const MutexLock lock(mutex_);
    while (calls_.empty()) changed_.Wait(mutex_);
    const auto* const wait = calls_[0] ? std::get_if<WaitCall>(&*calls_[0]) : nullptr;
    const bool is_next_of_step = calls_.size() > 1 && calls_[1] &&
                                 (std::holds_alternative<StepInput>(*calls_[1]) ||
                                  std::holds_alternative<SampleCall>(*calls_[1]) ||
                                  std::holds_alternative<SampleMaskedCall>(*calls_[1]));
    if (wait != nullptr && is_next_of_step && draws_ && stage() > 0) early = wait->number;
  }
  const bool later = early && !rank_.executor->Done(*early);
  const MutexLock lock(mutex_);
  if (later) std::swap(calls_[0], calls_[1]);
  return std::move(calls_[0]);
}

void Worker::Loop() {
  for (;;) {
    std::optional<Call> call = Next();
    if (!call) return;
    const bool reset = std::holds_alternative<ResetCall>(*call);
    const bool wait = std::holds_alternative<WaitCall>(*call);
    Result<StepOutput> result = Run(*std::move(call));
    // The other ranks may be waiting for this one.
    if (!result.ok()) rank_.communicator->Abort(result.status());
    const MutexLock lock(mutex_);
    if (reset) outputs_.clear();
    if (reset || error_.ok()) error_ = result.status();
    if (wait && draws_ && result.ok()) outputs_.push_back(*std::move(result));
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
    masked_ = step.HasMaskedRows();
    StepInput of_others = step;
    // The ranks of the first stage encode images.
    for (const auto& worker : others_) {
      if (worker->stage() > 0) {
        for (EncodeImage& image : of_others.encode) image.values.clear();
      }
      worker->Post(of_others);
    }
    return Checked(first_.executor->Submit(std::move(step)));
  }
  Status Sample(uint64_t number) override {
    Post(SampleCall{number});
    if (has_stages() && !masked_) PostToDrawing(WaitCall{number});
    return Checked(first_.executor->Sample(number));
  }
  Status SampleMasked(uint64_t number, std::vector<TokenMask> masks) override {
    PostToDrawing(SampleMaskedCall{number, masks});
    if (has_stages()) {
      PostToDrawing(WaitCall{number});
      return Status();
    }
    return Checked(first_.executor->SampleMasked(number, std::move(masks)));
  }
  bool Done(uint64_t number) override {
    if (has_stages()) {
      return std::all_of(others_.begin(), others_.end(), [](const auto& worker) {
        return !worker->draws() || worker->HasOutput();
      });
    }
    // May run the draft model, so all ranks take part.
    Post(DoneCall{number});
    return first_.executor->Done(number);
  }
  Result<StepOutput> Wait(uint64_t number) override;
  Status Reset() override {
    for (const auto& worker : others_) (void)worker->Finish();
    first_.communicator->Restart();
    for (const auto& worker : others_) worker->communicator().Restart();
    Post(ResetCall{});
    RETURN_IF_ERROR(Checked(first_.executor->Reset()));
    for (const auto& worker : others_) RETURN_IF_ERROR(worker->Finish());
    return Status();
  }
  std::vector<RankStats> rank_stats() const override {
    std::vector<RankStats> all = first_.executor->rank_stats();
    for (const auto& worker : others_) {
      for (const RankStats& stats : worker->stats()) all.push_back(stats);
    }
    return all;
  }

 private:
  bool has_stages() const { return limits_.stages > 1; }
  void Post(const Call& call) {
    for (const auto& worker : others_) worker->Post(call);
  }
  // To the ranks that draw. With several stages rank 0 is none of them. They then wait for a step
  // as soon as it is drawn: later calls may be behind steps that they have yet to compute.
  void PostToDrawing(const Call& call) {
    for (const auto& worker : others_) {
      if (worker->draws()) worker->Post(call);
    }
  }
  // Ends the others' waiting for rank 0 after an error.
  Status Checked(Status status) {
    if (!status.ok()) first_.communicator->Abort(status);
    return status;
  }

  const Rank first_;
  const std::vector<std::unique_ptr<Worker>> others_;
  const ExecutorLimits limits_;
  bool masked_ = false;  // the step submitted last will be given masks
};

Result<StepOutput> DriverExecutor::Wait(uint64_t number) {
  for (const auto& worker : others_) {
    if (!has_stages() || !worker->draws()) worker->Post(WaitCall{number});
  }
  Result<StepOutput> known = first_.executor->Wait(number);
  RETURN_IF_ERROR(Checked(known.status()));
  std::optional<StepOutput> output;  // of the first rank that draws
  if (!has_stages()) output = *known;
  size_t first = 0;
  for (size_t i = 0; i < others_.size(); ++i) {
    if (!others_[i]->draws()) continue;
    Result<StepOutput> other = others_[i]->Take();
    RETURN_IF_ERROR(Checked(other.status()));
    if (!output) {
      first = i + 1;
      output = *std::move(other);
    } else if (!SameDraws(*other, *output)) {
      return Checked(
          Internal("rank {} drew other tokens in step {} than rank {}", i + 1, number, first));
    }
  }
  if (has_stages() && !SameTokens(*known, *output)) {
    return Checked(
        Internal("rank 0 knows other tokens of step {} than the last stage drew", number));
  }
  return *std::move(output);
}

}  // namespace

Result<std::unique_ptr<Executor>> MakeDriverExecutor(std::vector<Rank> ranks) {
  std::vector<ExecutorLimits> limits;
  for (const Rank& rank : ranks) limits.push_back(rank.executor->limits());
  ASSIGN_OR_RETURN(const ExecutorLimits all, JoinLimits(limits));
  std::vector<std::unique_ptr<Worker>> others;
  for (size_t i = 1; i < ranks.size(); ++i) {
    const bool draws = ranks[i].communicator->info().stage == all.stages - 1;
    others.push_back(std::make_unique<Worker>(std::move(ranks[i]), draws));
  }
  return std::unique_ptr<Executor>(
      std::make_unique<DriverExecutor>(std::move(ranks[0]), std::move(others), all));
}

}  // namespace tokamak
