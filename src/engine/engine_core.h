// EngineCore: continuous batching as a synchronous state machine.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/arrival.h"
#include "engine/block_manager.h"
#include "engine/client_shares.h"
#include "engine/cost_model.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "executor/executor.h"
#include "tokamak/engine.h"
#include "tokamak/request.h"

namespace tokamak {

struct EngineCoreOptions {
  int32_t max_seqs = 64;          // sequences with a slot; at most the executor's
  int32_t max_step_tokens = 512;  // at least 2; at most the executor's
  int32_t max_context = 0;        // 0: the executor's
  // Requests that wait to be scheduled for the first time; more wait where one client has them all
  // (ClientShares).
  int32_t max_queue = 1024;
  double target_itl_ms = 0;   // see EngineOptions
  int32_t turn_tokens = 256;  // that a client gets in turn (ClientTurns)
  bool prefix_cache = true;
  uint64_t seed = 0;  // effective seeds of requests without one derive from it
  // Executor failures in a row after which everything ends with the error; when the last of them is
  // one of Reset, for good.
  int max_failures = 3;
  // Called when all choices of a request have ended.
  std::function<void(const RequestState&)> on_request_done;
};

// Owned and called by one thread, the engine thread, unless a method says otherwise. Clock and
// executor are injected, nothing else is read from outside, so a run is repeatable from what they
// and the callers gave (record.h).
//
// True between calls: at most depth - 1 steps are in flight; every accepted choice has had no chunk
// with a finish_reason yet, or exactly one; callbacks have been called for every token of every
// retired step up to its sequence's end, and for no token after it.
//
// It never blocks except in Executor::Wait, never calls back from Submit, Cancel or Check, and
// callbacks may call Submit and Cancel.
class EngineCore {
 public:
  // kInvalidArgument names the option or limit at fault. `clock` and `executor` must outlive it.
  static Result<std::unique_ptr<EngineCore>> Create(EngineCoreOptions options, Clock* clock,
                                                    Executor* executor);
  ~EngineCore();
  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;

  // Why a request could never run, with the numbers; kUnavailable once the engine has failed; OK if
  // it can run. Thread-safe.
  Status Check(const Arrival& arrival) const;
  // Queues a request. Refuses what Check refuses, and kUnavailable when the queue is full and the
  // client has its share of it.
  Status Submit(Arrival arrival);
  // Ends a request in the next step; unknown ids are ignored.
  void Cancel(RequestId request);
  void CancelAll();
  // From the next step on a request gets no tokens but those of steps in flight, and when these
  // have retired it holds neither slot nor KV blocks, until it is resumed. Its tokens do not depend
  // on it. Unknown ids are ignored.
  void Pause(RequestId request);
  void Resume(RequestId request);

  // False when Step would do nothing until one of the above is called.
  bool HasWork() const;
  // One round: takes arrivals and cancellations, retires steps that are done, submits the next step
  // and waits for the oldest if depth() are in flight or there was nothing to submit.
  void Step();

  // The state after the last Step. Thread-safe. `now` is that of the clock's time scale.
  // `waiting_since`: since when there has been work that the core may not have seen yet.
  EngineStats stats(TimePoint now, std::optional<TimePoint> waiting_since = {}) const
      EXCLUDES(stats_mutex_);
  // The same in detail, between two Steps. `now` as above, and in seconds since 1970.
  EngineSnapshot Snapshot(TimePoint now, double unix_now) const;
  // The error that ended the engine for good: the executor failed and could not be reset. Every
  // request ends with it, new ones are refused, and the executor is not called again. Thread-safe.
  Status health() const EXCLUDES(stats_mutex_);

  const EngineCoreOptions& options() const { return options_; }
  // The length that the sequences of an arrival may grow to, prompt included.
  int32_t MaxLength(const Arrival& arrival) const;

 private:
  friend class EngineChecker;  // tests/sim: invariants after every step

  struct StepInFlight {
    uint64_t number = 0;
    std::vector<ScheduledRow> rows;
    std::vector<BlockManager::Pin> pins;
    StepCost cost;
    TimePoint submitted{};
  };

  // The facts that a snapshot has about a request that has ended.
  struct EndedRequest {
    EngineSnapshot::Request request;  // but for its times
    uint64_t number = 0;              // counts arrivals
    TimePoint arrived{};
    std::optional<TimePoint> admitted;
    std::optional<TimePoint> first_token;
    TimePoint ended{};
  };

  EngineCore(EngineCoreOptions options, Clock* clock, Executor* executor);
  static EndedRequest Describe(const RequestState& request);
  void AddSequences(TimePoint now, EngineSnapshot* snapshot) const;
  void AddRequests(TimePoint now, EngineSnapshot* snapshot) const;

  // The verbs of Step.
  void AdmitArrivals();
  void DropCancelled();
  void PauseAndResume();
  void RetireDone();
  bool RecoverExecutor();
  bool SubmitNext();
  void RetireOldest();
  void Publish();

  void Admit(Arrival arrival);
  bool Idle() const;  // nothing is in flight or could be
  StepInput Pack(const Schedule& schedule, BlockManager::StepWork* work);
  AdmitSequence PackAdmission(const ScheduledRow& row) const;
  void NoteScheduled(const Schedule& schedule);
  void EndUnschedulable();

  void Retire(StepInFlight step, const StepOutput& output);
  void RetireRow(const ScheduledRow& row, const RowOutput& output);
  Status CheckOutput(const StepInFlight& step, const StepOutput& output) const;
  void CountExperts(const std::vector<int32_t>& loads);
  void CollectPromptLogprobs(Sequence* sequence, const ScheduledRow& row, const RowOutput& output);
  // Adds a drawn token to its sequence: emits it, or ends the sequence, or both.
  void Deliver(Sequence* sequence, TokenId token, const PositionLogprobs* logprobs);

  OutputChunk MakeChunk(Sequence* sequence) const;
  RequestTimings TimingsOf(const RequestState& request) const;
  void NoteEnded(const RequestState& request);
  void Emit(Sequence* sequence, OutputChunk chunk);
  void Finish(Sequence* sequence, FinishReason reason, Status error, OutputChunk chunk);
  // Ends all choices that have not ended.
  void EndRequest(RequestState* request, FinishReason reason, const Status& error);
  void EraseIfEnded(RequestState* request);
  // The executor failed: ends what was in flight, puts the rest back.
  void FailSteps(const Status& error, const std::vector<ScheduledRow>* submitting);
  void EndAll(const Status& error);

  const EngineCoreOptions options_;
  const ExecutorLimits limits_;
  Clock* const clock_;
  Executor* const executor_;
  int32_t max_length_ = 1;  // of a sequence that has all blocks
  CostModel costs_;
  BlockManager blocks_;
  Scheduler scheduler_;

  TimePoint now_{};  // of the running Step
  std::vector<Arrival> arrivals_;
  std::vector<RequestId> cancels_;
  std::vector<std::pair<RequestId, bool>> pauses_;  // in order; false: resume
  size_t num_paused_ = 0;                           // of requests_
  std::map<RequestId, std::unique_ptr<RequestState>> requests_;
  std::deque<StepInFlight> in_flight_;
  uint64_t next_step_ = 0;
  uint64_t num_rounds_ = 0;  // steps scheduled; never starts afresh
  uint64_t num_arrivals_ = 0;
  ClientShares queued_;  // requests that have not been scheduled, those in arrivals_ included
  bool needs_reset_ = false;
  int num_failures_ = 0;  // in a row
  TimePoint last_retired_{};
  TimePoint last_progress_{};
  EngineStats counters_;
  std::deque<EndedRequest> ended_;  // the last ones, the latest last

  mutable Mutex stats_mutex_;
  EngineStats published_ GUARDED_BY(stats_mutex_);
  TimePoint published_progress_ GUARDED_BY(stats_mutex_){};
  bool published_busy_ GUARDED_BY(stats_mutex_) = false;
  Status health_ GUARDED_BY(stats_mutex_);  // written by the engine thread
};

}  // namespace tokamak
