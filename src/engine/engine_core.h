// EngineCore: continuous batching as a synchronous state machine.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/arrival.h"
#include "engine/block_manager.h"
#include "engine/client_shares.h"
#include "engine/cost_model.h"
#include "engine/encoder_cache.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/step_times.h"
#include "executor/executor.h"
#include "tokamak/engine_snapshot.h"
#include "tokamak/request.h"

namespace tokamak {

class ThreadPool;

struct EngineCoreOptions {
  int32_t max_seqs = 64;          // sequences with a slot; at most the executor's
  int32_t max_step_tokens = 512;  // at least 2; at most the executor's
  int32_t max_context = 0;        // 0: the executor's
  // Limit on requests that have not run yet; beyond it every client still has a share
  // (ClientShares).
  int32_t max_queue = 1024;
  double target_itl_ms = 0;  // see EngineOptions
  int32_t quantum = 256;     // tokens per turn of a client (FairShare)
  // Neither with CacheSpec::sequence_state.
  DraftOptions drafts;
  bool prefix_cache = true;
  uint64_t seed = 0;  // derives the seeds of requests that have none
  // After this many executor failures in a row every request ends with the error. If the last
  // failure was Reset's, the engine stays failed.
  int max_failures = 3;
  // Called when all choices of a request have ended.
  std::function<void(const RequestState&)> on_request_done;
};

// Owned and called by one thread, the engine thread, unless a method says otherwise. Its only
// inputs are its callers, the clock and the executor, so a record of what they gave repeats the run
// (record.h).
//
// True between calls: at most depth - 1 steps are in flight. An accepted choice has had at most one
// chunk with a finish_reason. Callbacks have been called for every token of every retired step up
// to its sequence's end, and for none after it.
//
// Blocks only in Executor::Wait. Submit, SubmitChecked, Cancel and Check never call back; callbacks
// may call Submit and Cancel.
class EngineCore {
 public:
  // kInvalidArgument names the option or limit. The pointers must outlive the core. With a pool,
  // its threads make the masks of a step; whoever calls Step owns it meanwhile.
  static Result<std::unique_ptr<EngineCore>> Create(EngineCoreOptions options, Clock* clock,
                                                    Executor* executor, ThreadPool* pool = nullptr);
  ~EngineCore();
  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;

  // OK if the request can run; otherwise the reason why it never can, with the numbers.
  // kUnavailable once the engine has failed. Thread-safe.
  Status Check(const Arrival& arrival) const;
  // Queues a request. Refuses what Check refuses; kUnavailable if the queue is full and the client
  // has its share of it.
  Status Submit(Arrival arrival);
  // Submit for an arrival that Check has accepted, on any thread; does not check it again.
  Status SubmitChecked(Arrival arrival);
  // Ends a request in the next step. Ignores unknown ids.
  void Cancel(RequestId request);
  void CancelAll();
  // Pauses a request from the next step on: it gets no tokens except from steps in flight, and then
  // holds neither slot nor KV blocks until Resume. Its tokens stay the same. Ignores unknown ids.
  void Pause(RequestId request);
  void Resume(RequestId request);

  // The executor has lost its workers (Executor::Lost): the next step resets it. Ends the requests
  // in flight; the others are computed again.
  void LoseExecutor(const Status& error);

  // False if Step would do nothing until one of the above is called.
  bool HasWork() const;
  // One round: takes arrivals and cancellations, retires finished steps, submits the next one, and
  // waits for the oldest if `depth` steps are in flight or nothing was submitted. If then no step
  // is in flight although several may be, because all sequences waited for that one (to draft, for
  // example), submits the next one, too. Outputs are delivered when a step has been submitted.
  void Step();

  // The state after the last Step. Thread-safe. `now` is a reading of the core's clock.
  // `waiting_since`: when work arrived that the core may not have seen yet.
  EngineStats stats(TimePoint now, std::optional<TimePoint> waiting_since = {}) const
      EXCLUDES(stats_mutex_);
  // The state in detail. Call it between two Steps. `unix_now`: seconds since 1970.
  EngineSnapshot Snapshot(TimePoint now, double unix_now) const;
  // The error that ended the engine for good: all requests end with it, new ones are refused, and
  // the executor is not called again. Thread-safe.
  Status health() const EXCLUDES(stats_mutex_);
  // EngineStats::restarting. Thread-safe.
  bool restarting() const EXCLUDES(stats_mutex_);

  const EngineCoreOptions& options() const { return options_; }
  // The content of each position of the prompt, by which the prefix cache knows it.
  static std::vector<ContentId> PromptContent(const Arrival& arrival);
  // The most tokens that a sequence of this arrival may reach, prompt included.
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

  // OK, or why a sequence cannot go on after a row whose last position is `position`.
  static Status HealthError(RowHealth health, int32_t position);

  // The part of a snapshot that describes an ended request.
  struct EndedRequest {
    EngineSnapshot::Request request;  // without its times
    uint64_t number = 0;              // counts arrivals
    TimePoint arrived{};
    std::optional<TimePoint> admitted;
    std::optional<TimePoint> first_token;
    TimePoint ended{};
  };

  EngineCore(EngineCoreOptions options, Clock* clock, Executor* executor, ThreadPool* pool);
  static EndedRequest Describe(const RequestState& request);
  void AddSequences(TimePoint now, EngineSnapshot* snapshot) const;
  void AddRequests(TimePoint now, EngineSnapshot* snapshot) const;

  // The verbs of Step.
  void AdmitArrivals();
  void DropCancelled();
  void PauseAndResume();
  void RetireDone();
  bool RecoverExecutor();
  void SetRestarting(std::string_view reason) EXCLUDES(stats_mutex_);
  bool SubmitNext();
  void RetireOldest();
  void DeliverOutputs();
  void Publish();

  Status CheckHealth() const EXCLUDES(stats_mutex_);
  void Admit(Arrival arrival);
  // The most tokens of a sequence of which so many have all blocks.
  int32_t LongestOf(int32_t num_sequences) const;
  bool Idle() const;  // no step is in flight, and none could be submitted
  StepInput Pack(const Schedule& schedule, BlockManager::StepWork* work);
  AdmitSequence PackAdmission(const ScheduledRow& row) const;
  // The constraint of the sequence or beam of a masked row.
  static TokenConstraint& ConstraintOf(const ScheduledRow& row);
  void NoteScheduled(const Schedule& schedule);
  // Waits for the tokens before those that the latest step draws under masks. Its forward pass runs
  // meanwhile.
  void RetireForMasks();
  // Makes the masks of these rows, in parallel. Ends a request that has no token to draw.
  std::vector<TokenMask> MakeMasks(const std::vector<ScheduledRow>& rows);
  // Makes one for each draw of a row.
  Status FillMasks(const ScheduledRow& row, std::vector<TokenMask>* masks) const;
  Status FillMask(const Sequence& sequence, TokenConstraint& constraint,
                  std::vector<uint32_t>* mask) const;
  static bool AllowsAny(const std::vector<uint32_t>& mask);
  static Status NoTokenFits(const Sequence& sequence);
  // The field that constrains the answers of a request.
  static std::string_view NameOfConstraint(const RequestState& request);
  void EndUnschedulable();

  void Retire(StepInFlight step, const StepOutput& output);
  void RetireRow(const ScheduledRow& row, const RowOutput& output);
  Status CheckOutput(const StepInFlight& step, const StepOutput& output) const;
  // Learns from a step's time.
  void NoteTime(const StepInFlight& step, const StepOutput& output, double seconds);
  void CountExperts(const std::vector<int32_t>& loads, bool decode);
  void CountDrafts(RequestState* request, size_t num_drafts);
  // Gives the prefix cache the blocks that are complete.
  void CommitBlocks(Sequence* sequence);
  void CollectPromptLogprobs(Sequence* sequence, const ScheduledRow& row, const RowOutput& output);
  // Adds a drawn token to its sequence: emits it, or ends the sequence, or both.
  void AddToken(Sequence* sequence, TokenId token, const TokenLogprobs* logprobs);

  // Images.
  Status CheckImages(const Arrival& arrival) const;
  // The most blocks that a sequence of the request needs at a time, up to so many positions.
  int32_t BlocksNeeded(const Arrival& arrival, int32_t positions) const;
  // Gives a request and its sequences the images of its arrival.
  static void AddImages(Arrival* arrival, RequestState* request);
  void PackImages(StepInput* input);

  // Beam search.
  Status CheckBeams(const Arrival& arrival, int32_t positions) const;
  // Gives a sequence the beams of its request, with the arrival's decoders and constraints.
  void AddBeams(Arrival* arrival, size_t num_ends, Sequence* sequence) const;
  void RetireBeamRow(const ScheduledRow& row, const RowOutput& output);
  // The candidates of all beams are known: chooses the beams that go on, or ends the search.
  void ChooseBeams(Sequence* sequence);
  void FinishBeams(Sequence* sequence);
  // The last chunk of a choice.
  OutputChunk MakeAnswer(const Sequence& sequence, size_t choice) const;

  // A token of the request is known: its time counts if it is the first.
  void NoteToken(RequestState* request);
  OutputChunk MakeChunk(Sequence* sequence) const;
  RequestTimings TimingsOf(const RequestState& request) const;
  void NoteEnded(const RequestState& request);
  // Adds the chunk to outputs_.
  void Emit(Sequence* sequence, OutputChunk chunk);
  void Finish(Sequence* sequence, FinishReason reason, Status error, OutputChunk chunk);
  // With the last chunk of each of its choices; several only with beam search.
  void Finish(Sequence* sequence, std::vector<OutputChunk> chunks);
  void EndRequest(RequestState* request, FinishReason reason, const Status& error);
  void EraseIfEnded(RequestState* request);
  // After an executor error: ends the requests in flight and returns the others to the queue.
  void DropSteps(const Status& error);
  // The same, and counts it.
  void FailSteps(const Status& error);
  void EndAll(const Status& error);

  const EngineCoreOptions options_;
  const ExecutorLimits limits_;
  Clock* const clock_;
  Executor* const executor_;
  ThreadPool* const pool_;  // may be null
  int32_t max_length_ = 1;  // tokens of a sequence that has all blocks
  CostModel costs_;
  StepTimes step_times_;
  BlockManager blocks_;
  EncoderCache encoder_;
  Scheduler scheduler_;

  TimePoint now_{};  // when the running Step began
  std::vector<Arrival> arrivals_;
  std::vector<RequestId> cancels_;
  std::vector<std::pair<RequestId, bool>> pauses_;  // in order; true: pause, false: resume
  size_t num_paused_ = 0;                           // in requests_
  std::map<RequestId, std::unique_ptr<RequestState>> requests_;
  std::deque<StepInFlight> in_flight_;
  // Chunks that DeliverOutputs has yet to deliver. Empty between calls.
  std::vector<std::pair<std::shared_ptr<const OutputCallback>, OutputChunk>> outputs_;
  uint64_t next_step_ = 0;
  uint64_t num_rounds_ = 0;  // steps scheduled; a reset does not restart it
  uint64_t num_arrivals_ = 0;
  ClientShares queued_;  // requests that have not run yet, including those in arrivals_
  bool needs_reset_ = false;
  int num_failures_ = 0;  // in a row
  Status last_error_;     // of the executor
  TimePoint last_retired_{};
  TimePoint last_progress_{};
  EngineStats counters_;
  std::deque<EndedRequest> ended_;  // the last few, latest last

  mutable Mutex stats_mutex_;
  EngineStats published_ GUARDED_BY(stats_mutex_);
  TimePoint published_progress_ GUARDED_BY(stats_mutex_){};
  bool published_busy_ GUARDED_BY(stats_mutex_) = false;
  Status health_ GUARDED_BY(stats_mutex_);  // written by the engine thread
};

}  // namespace tokamak
