#include "executor/serve_rank.h"

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>
#include <variant>

#include "base/error.h"
#include "rpc/worker_messages.h"

namespace tokamak {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kStatsPeriod(100);
// How often a rank whose stage draws nothing looks for errors of its device.
constexpr std::chrono::milliseconds kLookPeriod(10);
// The next step comes about so long after the output of the one before, or never. After that a rank
// waits for its device alone, which also notices a device that hangs.
constexpr std::chrono::milliseconds kNextPatience(3);

class RankServer {
 public:
  RankServer(Executor& executor, Communicator* communicator, Inbox& inbox,
             const std::function<void(std::string)>& send)
      : executor_(executor),
        info_(communicator != nullptr ? communicator->info() : RankInfo()),
        communicator_(communicator),
        inbox_(inbox),
        send_(send) {}

  Status Run() {
    for (;;) {
      const bool has_output = draws() && !steps_.empty() && steps_.front().drawn;
      // A CPU computes a step when it is submitted: the output must not wait for the next one's.
      // In a pipeline, no more than one further step comes first: what a device has to do to submit
      // it may wait for an earlier stage, which may wait for the oldest step's draws.
      const bool enough = info_.stages > 1 && steps_.size() > 1;
      if (has_output && (enough || executor_.Done(steps_.front().number))) {
        Report(ReturnOldest());
        continue;
      }
      const bool looks = !draws() && !steps_.empty() && !steps_.front().ended;
      if (looks && executor_.Done(steps_.front().number)) {
        steps_.front().ended = true;
        Report(executor_.Wait(steps_.front().number).status());
        continue;
      }
      const auto deadline =
          looks ? SteadyClock::now() + kLookPeriod : SteadyClock::time_point::max();
      std::optional<Incoming> incoming = has_output ? TakeMeanwhile() : inbox_.Take(deadline);
      if (!incoming) {
        if (has_output) Report(ReturnOldest());
        continue;
      }
      RETURN_IF_ERROR(incoming->message.status());
      // With ASSIGN_OR_RETURN, GCC 12 warns that the message may be used uninitialized.
      Result<ToWorker> message = DecodeToWorker(*incoming->message, executor_.limits());
      RETURN_IF_ERROR(message.status());
      RETURN_IF_ERROR(Take(*std::move(message)));
    }
  }

 private:
  struct Step {
    uint64_t number = 0;
    bool drawn = false;  // all draws have started
    bool ended = false;  // waited for, before the driver has taken it back
  };

  // Returns what arrives while a device computes the oldest step, or nothing once that is done or
  // has taken longer than kNextPatience.
  std::optional<Incoming> TakeMeanwhile();
  Status Take(ToWorker message);
  Status Submit(StepInput step);
  Status SampleMasked(StepMasks masks);
  // In a pipeline, the ranks of the last stage.
  bool draws() const { return info_.stage == info_.stages - 1; }
  // Waits for the oldest step and sends its output.
  Status ReturnOldest();
  // Sends what this rank measures, but not with every step.
  void SendStats();
  // Ends the oldest step, which others have drawn.
  Status EndOldest(uint64_t number);
  Status Reset();
  // Tells the driver and the other ranks of an error. Steps are refused until Reset.
  void Report(const Status& status) {
    if (status.ok() || failed_) return;
    failed_ = true;
    steps_.clear();
    if (communicator_ != nullptr) communicator_->Abort(status);
    send_(EncodeToDriver(status));
  }

  Executor& executor_;
  const RankInfo info_;
  Communicator* const communicator_;
  Inbox& inbox_;
  const std::function<void(std::string)>& send_;
  std::deque<Step> steps_;  // in flight
  bool failed_ = false;
  SteadyClock::time_point stats_sent_{};
};

std::optional<Incoming> RankServer::TakeMeanwhile() {
  const SteadyClock::time_point give_up = SteadyClock::now() + kNextPatience;
  for (;;) {
    const SteadyClock::time_point now = SteadyClock::now();
    std::optional<Incoming> incoming = inbox_.Take(now);
    if (incoming || now > give_up || executor_.Done(steps_.front().number)) return incoming;
    std::this_thread::yield();
  }
}

Status RankServer::Take(ToWorker message) {
  if (auto* const step = std::get_if<StepInput>(&message)) {
    if (!failed_) Report(Submit(std::move(*step)));
  } else if (auto* const masks = std::get_if<StepMasks>(&message)) {
    if (!failed_) Report(SampleMasked(std::move(*masks)));
  } else if (const auto* const taken = std::get_if<StepTaken>(&message)) {
    if (!failed_) Report(EndOldest(taken->number));
  } else if (std::holds_alternative<Quiesce>(message)) {
    failed_ = true;
    steps_.clear();
    send_(EncodeToDriver(Quiet{}));
  } else if (std::holds_alternative<ResetRank>(message)) {
    failed_ = false;
    const Status status = Reset();
    Report(status);
    if (status.ok()) send_(EncodeToDriver(Quiet{}));
  } else {
    return Internal("the driver sent a message of type {} while this rank runs steps",
                    message.index());
  }
  return Status();
}

Status RankServer::Submit(StepInput step) {
  const uint64_t number = step.number;
  const bool masked = step.HasMaskedRows();
  RETURN_IF_ERROR(executor_.Submit(std::move(step)));
  RETURN_IF_ERROR(executor_.Sample(number));
  steps_.push_back({number, !masked});
  return Status();
}

Status RankServer::SampleMasked(StepMasks masks) {
  if (steps_.empty() || steps_.back().number != masks.number || steps_.back().drawn) {
    return Internal("masks came for step {}, which waits for none", masks.number);
  }
  steps_.back().drawn = true;
  return executor_.SampleMasked(masks.number, std::move(masks.masks));
}

Status RankServer::EndOldest(uint64_t number) {
  if (draws() || steps_.empty() || steps_.front().number != number) {
    return Internal("the driver has taken back step {}, which is not the oldest here", number);
  }
  const bool ended = steps_.front().ended;
  steps_.pop_front();
  if (!ended) RETURN_IF_ERROR(executor_.Wait(number).status());
  SendStats();
  return Status();
}

Status RankServer::ReturnOldest() {
  ASSIGN_OR_RETURN(StepOutput output, executor_.Wait(steps_.front().number));
  steps_.pop_front();
  if (info_.rank != 0) {
    // The driver compares the tokens of these ranks and uses nothing else.
    output.expert_loads.clear();
    for (RowOutput& row : output.rows) {
      row.logprobs.clear();
      row.prompt_logprobs.clear();
      row.candidates.clear();
    }
  }
  SendStats();  // first, so that the driver has them when it has the output
  send_(EncodeToDriver(std::move(output)));
  return Status();
}

void RankServer::SendStats() {
  const SteadyClock::time_point now = SteadyClock::now();
  if (now - stats_sent_ < kStatsPeriod) return;
  stats_sent_ = now;
  for (const RankStats& stats : executor_.rank_stats()) send_(EncodeToDriver(stats));
}

Status RankServer::Reset() {
  if (communicator_ != nullptr) communicator_->Restart();
  return executor_.Reset();
}

}  // namespace

Status ServeRank(Executor& executor, Communicator* communicator, Inbox& inbox,
                 const std::function<void(std::string)>& send) {
  return RankServer(executor, communicator, inbox, send).Run();
}

}  // namespace tokamak
