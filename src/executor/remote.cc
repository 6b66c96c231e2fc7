#include "executor/remote.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mutex.h"
#include "executor/ranks_agree.h"
#include "rpc/worker_messages.h"

namespace tokamak {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct RemoteStep {
  uint64_t number = 0;
  // One for each rank that draws; absent until it arrives.
  std::vector<std::optional<StepOutput>> outputs;
  bool done() const {
    for (const auto& output : outputs) {
      if (!output) return false;
    }
    return true;
  }
};

// Owned by the engine thread.
class RemoteExecutor final : public Executor {
 public:
  RemoteExecutor(std::unique_ptr<WorkerGroup> group, const ExecutorLimits& limits,
                 std::chrono::milliseconds patience)
      : group_(std::move(group)), limits_(limits), patience_(patience), step_limit_(patience) {
    const MutexLock lock(stats_mutex_);
    stats_.resize(static_cast<size_t>(group_->size()));
    for (int32_t rank = 0; rank < group_->size(); ++rank) Note(rank, RankStats());
  }

  const ExecutorLimits& limits() const override { return limits_; }
  Status Submit(StepInput step) override {
    RETURN_IF_ERROR(error_);
    steps_.push_back({step.number, {}});
    steps_.back().outputs.resize(static_cast<size_t>(group_->size() - first_drawing()));
    Send(step, 0, stage_size());
    for (EncodeImage& image : step.encode) image.values.clear();  // the first stage encodes it
    Send(std::move(step), stage_size(), group_->size());
    return Status();
  }
  // The workers draw these rows right after the forward pass.
  Status Sample(uint64_t) override { return error_; }
  Status SampleMasked(uint64_t number, std::vector<TokenMask> masks) override {
    RETURN_IF_ERROR(error_);
    Send(StepMasks{number, std::move(masks)}, first_drawing(), group_->size());
    return Status();
  }
  bool Done(uint64_t number) override {
    CHECK(!error_.ok() || (!steps_.empty() && steps_.front().number == number));
    while (error_.ok() && !steps_.front().done() && Take(SteadyClock::now())) continue;
    return !error_.ok() || steps_.front().done();
  }
  void Expect(double seconds) override;
  Result<StepOutput> Wait(uint64_t number) override;
  Status Reset() override;
  Status Lost() override {
    while (!lost_ && Take(SteadyClock::now())) continue;
    return lost_ ? error_ : Status();
  }
  void OnLost(const std::function<void()>& wake) override { group_->OnLost(wake); }
  std::vector<RankStats> rank_stats() const override EXCLUDES(stats_mutex_) {
    const MutexLock lock(stats_mutex_);
    return stats_;
  }

 private:
  void Note(int32_t rank, RankStats stats) REQUIRES(stats_mutex_) {
    stats.rank = rank;
    stats.stage = rank / stage_size();
    stats_[static_cast<size_t>(rank)] = stats;
  }
  int32_t stage_size() const { return group_->size() / limits_.stages; }
  int32_t first_drawing() const { return group_->size() - stage_size(); }
  // To these ranks.
  void Send(const ToWorker& message, int32_t begin, int32_t end) {
    if (begin == end) return;
    const std::string bytes = EncodeToWorker(message);
    for (int32_t rank = begin; rank < end; ++rank) group_->Send(rank, bytes);
  }
  // Takes the next message before the deadline; false if there is none. Sets the error if a worker
  // is lost or says what it should not.
  bool Take(SteadyClock::time_point deadline);
  void Take(int32_t rank, ToDriver message);
  void Lose(Status error) {
    if (error_.ok()) error_ = std::move(error);
    lost_ = true;
  }
  // Sends the message to all and waits for each worker's Quiet.
  Status Command(const ToWorker& message);

  const std::unique_ptr<WorkerGroup> group_;
  const ExecutorLimits limits_;
  const std::chrono::milliseconds patience_;
  std::chrono::milliseconds step_limit_;  // of the oldest step
  std::deque<RemoteStep> steps_;          // in flight
  Status error_;                          // since the last Reset
  bool lost_ = false;                     // the workers cannot go on
  int32_t num_quiet_ = 0;
  mutable Mutex stats_mutex_;
  std::vector<RankStats> stats_ GUARDED_BY(stats_mutex_);  // by rank
};

bool RemoteExecutor::Take(SteadyClock::time_point deadline) {
  Result<std::optional<WorkerGroup::Message>> message = group_->Receive(deadline);
  if (!message.ok()) {
    Lose(message.status());
    return false;
  }
  if (!*message) return false;
  const int32_t rank = (*message)->rank;
  Result<ToDriver> decoded = DecodeToDriver((*message)->bytes, limits_);
  if (decoded.ok()) {
    Take(rank, *std::move(decoded));
  } else {
    Lose(decoded.status().WithContext(fmt::format("rank {}", rank)));
  }
  return true;
}

void RemoteExecutor::Take(int32_t rank, ToDriver message) {
  if (auto* const output = std::get_if<StepOutput>(&message)) {
    if (!error_.ok()) return;  // of a step that has failed
    if (rank < first_drawing())
      return Lose(Internal("rank {} returned a step without drawing", rank));
    const auto index = static_cast<size_t>(rank - first_drawing());
    for (RemoteStep& step : steps_) {
      if (step.outputs[index]) continue;
      if (step.number != output->number) break;
      step.outputs[index] = std::move(*output);
      return;
    }
    Lose(Internal("rank {} returned step {}, which is not its next", rank, output->number));
  } else if (const auto* const error = std::get_if<Status>(&message)) {
    // Another rank's error comes back from those that wait for it, and names that rank.
    if (!error_.ok()) return;
    const bool named = error->message().starts_with("rank ");
    error_ = named ? *error : error->WithContext(fmt::format("rank {}", rank));
  } else if (std::holds_alternative<Quiet>(message)) {
    ++num_quiet_;
  } else if (const auto* const stats = std::get_if<RankStats>(&message)) {
    const MutexLock lock(stats_mutex_);
    Note(rank, *stats);
  } else {
    Lose(Internal("rank {} sent {} while it runs steps", rank, Describe(message)));
  }
}

void RemoteExecutor::Expect(double seconds) {
  constexpr double kUnknownSeconds = 600;
  constexpr double kTimes = 10;
  const std::chrono::duration<double> limit(seconds > 0 ? kTimes * seconds : kUnknownSeconds);
  step_limit_ = std::max(patience_, std::chrono::duration_cast<std::chrono::milliseconds>(limit));
}

Result<StepOutput> RemoteExecutor::Wait(uint64_t number) {
  RETURN_IF_ERROR(error_);
  CHECK(!steps_.empty() && steps_.front().number == number);
  RemoteStep& step = steps_.front();
  const SteadyClock::time_point deadline = SteadyClock::now() + step_limit_;
  while (error_.ok() && !step.done()) {
    if (Take(deadline) || !error_.ok()) continue;
    int32_t rank = first_drawing();
    while (step.outputs[static_cast<size_t>(rank - first_drawing())]) ++rank;
    Lose(Unavailable("rank {} has not finished step {} within {:.1f} s", rank, number,
                     std::chrono::duration<double>(step_limit_).count()));
  }
  RETURN_IF_ERROR(error_);
  StepOutput output = *std::move(step.outputs[0]);
  for (size_t i = 1; i < step.outputs.size(); ++i) {
    if (SameDraws(*step.outputs[i], output)) continue;
    return error_ = Internal("rank {} drew other tokens in step {} than rank {}",
                             first_drawing() + static_cast<int32_t>(i), number, first_drawing());
  }
  Send(StepTaken{number}, 0, first_drawing());
  steps_.pop_front();
  return output;
}

Status RemoteExecutor::Command(const ToWorker& message) {
  num_quiet_ = 0;
  Send(message, 0, group_->size());
  const SteadyClock::time_point deadline = SteadyClock::now() + patience_;
  while (!lost_ && num_quiet_ < group_->size()) {
    if (!Take(deadline) && !lost_) {
      return Unavailable("{} of {} workers do not answer", group_->size() - num_quiet_,
                         group_->size());
    }
  }
  return lost_ ? error_ : Status();
}

Status RemoteExecutor::Reset() {
  steps_.clear();
  bool starts_again = lost_ || !group_->CanReset();
  if (!starts_again) {
    // No rank may begin before all have left the exchanges that failed.
    Status status = Command(Quiesce{});
    if (status.ok()) status = Command(ResetRank{});
    if (!status.ok()) LogWarning("the workers start again: {}", status.message());
    starts_again = !status.ok();
  }
  if (starts_again) {
    lost_ = true;  // until others have started
    RETURN_IF_ERROR(group_->Restart());
    LogInfo("the workers have started again");
  }
  lost_ = false;
  error_ = Status();
  return Status();
}

}  // namespace

std::unique_ptr<Executor> MakeRemoteExecutor(std::unique_ptr<WorkerGroup> group,
                                             const ExecutorLimits& limits,
                                             std::chrono::milliseconds patience) {
  return std::make_unique<RemoteExecutor>(std::move(group), limits, patience);
}

}  // namespace tokamak
