// FakeRanks: the workers of a RemoteExecutor, which are late, overtake each other and fail.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/remote.h"
#include "rpc/worker_messages.h"
#include "sim/fake_executor.h"

namespace tokamak::sim {

struct FakeRanksOptions {
  int32_t stage_size = 0;        // ranks of each stage
  double late_seconds = 0;       // a message takes up to this long
  int32_t failure_permille = 0;  // per rank and step, and per DieSometimes
  int32_t restart_failure_percent = 0;
};

// Each rank takes its messages in their order; between ranks there is none. A rank of the last
// stage runs a FakeExecutor when the message is sent, and its output arrives some time after that
// one is done. The other ranks only check what they are sent. A rank fails in one of the ways of a
// worker process: it says so, dies, or hangs. Then no other rank ends a later step.
//
// Time is that of the simulation: a call with a deadline in the future gets a message whenever one
// will come, and passes its deadline only if none will.
class FakeRanks final : public WorkerGroup {
 public:
  // `first` runs the steps of the first rank that draws, and outlives this. The others are like it,
  // but for their jitter.
  FakeRanks(const FakeRanksOptions& options, const FakeExecutorOptions& executor, uint64_t seed,
            FakeExecutor* first, ManualClock* clock, Verdict* verdict);

  int32_t size() const override { return static_cast<int32_t>(ranks_.size()); }
  void Send(int32_t rank, std::string message) override;
  Result<std::optional<Message>> Receive(std::chrono::steady_clock::time_point deadline) override;
  Status Restart() override;
  void OnLost(const std::function<void()>& wake) override { on_lost_ = wake; }

  // A rank dies now and then, whatever the engine does.
  void DieSometimes();
  // Called with every step that is sent, before it takes effect.
  std::function<void(const StepInput&)> on_submit;

  // True from a rank's failure until the group goes on.
  bool broken() const;
  int64_t num_failures() const { return num_failures_; }
  // Outputs that came before another rank's of an earlier step.
  int64_t num_overtaken() const { return num_overtaken_; }
  int64_t num_restarts() const { return num_restarts_; }

 private:
  // A message from a rank, or the end of its connection.
  struct Out {
    std::optional<uint64_t> step = {};  // its output, once that is done
    std::string bytes = {};             // otherwise
    bool end = false;                   // no message, but the end of the connection
    TimePoint ready = {};               // not before
  };
  struct Rank {
    FakeExecutor* executor = nullptr;  // null: of a stage that does not draw
    std::deque<Out> out;
    std::deque<uint64_t> steps;         // of a rank that does not draw: those not taken back
    uint64_t next = 0;                  // the number of the next step
    std::optional<uint64_t> masks_for;  // the step that waits for masks
    uint64_t returned = 0;              // steps
    bool failed = false;                // takes no step until it is reset
    bool gone = false;                  // dead or hung: takes nothing until the group starts again
    std::optional<uint64_t> fails_at;   // because another rank has failed: the first step not ended
    Status error;                       // that it reports then; OK: it hangs
  };

  int32_t stage_size() const { return options_.stage_size; }
  int32_t first_drawing() const { return size() - stage_size(); }
  bool Chance(int32_t permille) { return permille > 0 && rng_.In(0, 999) < permille; }
  void Push(Rank* rank, Out out);
  void Take(int32_t rank, ToWorker message);
  void TakeStep(int32_t rank, StepInput step);
  void TakeMasks(int32_t rank, StepMasks masks);
  void TakeTaken(int32_t rank, uint64_t number);
  void TakeQuiesce(int32_t rank);
  void TakeReset(int32_t rank);
  // The rank fails in step `number`, in a way that chance decides.
  void FailAt(int32_t rank, uint64_t number);
  void Die(int32_t rank);
  // A rank that goes on can end step `number` at most, because another has failed: it reports
  // `error` then, or hangs if that is OK.
  void StopOthers(Rank* rank, uint64_t number, const Status& error);
  void Stop(Rank* rank);
  // Forgets the steps that are not returned yet.
  static void Forget(Rank* rank);
  static void StartAgain(Rank* rank);
  bool Ready(const Rank& rank) const;
  std::string OutputOf(int32_t rank, uint64_t number);
  template <typename... Args>
  void Fail(const char* format, Args... args);

  const FakeRanksOptions options_;
  const ExecutorLimits limits_;
  Rng rng_;
  ManualClock* const clock_;
  Verdict* const verdict_;
  std::vector<std::unique_ptr<FakeExecutor>> executors_;  // but the first
  std::vector<Rank> ranks_;
  std::function<void()> on_lost_;
  int64_t num_failures_ = 0;
  int64_t num_overtaken_ = 0;
  int64_t num_restarts_ = 0;
};

}  // namespace tokamak::sim
