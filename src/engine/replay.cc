#include "engine/replay.h"

#include <deque>
#include <utility>

#include "base/error.h"

namespace tokamak {
namespace {

// The events still to come. The first difference ends the replay: `status` says what it was, and
// every later executor call fails.
class Tape {
 public:
  explicit Tape(RecordReader reader) : reader_(std::move(reader)) {}

  const Status& status() const { return status_; }
  void Fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  // The next call from outside, or nullopt at the end or after a failure.
  std::optional<RecordEvent> NextCall() {
    if (!deferred_.empty()) {
      RecordEvent event = std::move(deferred_.front());
      deferred_.pop_front();
      return event;
    }
    return Read();
  }

  // The event that answers what the engine core just asked for; it must be an Event. Calls that
  // callbacks made meanwhile are deferred until the step is over, as in the core's own queues.
  template <typename Event>
  std::optional<Event> Expect(const char* what) {
    for (;;) {
      std::optional<RecordEvent> event = Read();
      if (!event) break;
      if (auto* expected = std::get_if<Event>(&*event)) return std::move(*expected);
      const bool call = std::holds_alternative<ArrivalEvent>(*event) ||
                        std::holds_alternative<CancelEvent>(*event) ||
                        std::holds_alternative<CancelAllEvent>(*event);
      if (!call) {
        Fail(Internal("step {}: the replay {}, but the recorded run did not", next_step, what));
        break;
      }
      deferred_.push_back(std::move(*event));
    }
    ended_ = true;
    return std::nullopt;
  }

  // Whether the record ends in the middle of a step, as it does if the process was killed.
  bool ended() const { return ended_; }

  uint64_t next_step = 0;  // for messages

 private:
  std::optional<RecordEvent> Read() {
    if (ended_ || !status_.ok()) return std::nullopt;
    Result<std::optional<RecordEvent>> event = reader_.Next();
    if (!event.ok()) {
      Fail(event.status());
      return std::nullopt;
    }
    if (!*event) ended_ = true;
    return *std::move(event);
  }

  RecordReader reader_;
  std::deque<RecordEvent> deferred_;
  Status status_;
  bool ended_ = false;
};

class TapeClock final : public Clock {
 public:
  explicit TapeClock(Tape* tape) : tape_(tape) {}
  TimePoint Now() override {
    if (auto event = tape_->Expect<ClockEvent>("reads the clock")) {
      now_ = TimePoint(Duration(event->nanoseconds));
    }
    return now_;
  }

 private:
  Tape* const tape_;
  TimePoint now_{};
};

class TapeExecutor final : public Executor {
 public:
  TapeExecutor(Tape* tape, Executor* inner, const ExecutorLimits& limits, ReplayReport* report)
      : tape_(tape), inner_(inner), limits_(limits), report_(report) {}

  const ExecutorLimits& limits() const override { return limits_; }
  Status Submit(StepInput step) override;
  Status Sample(uint64_t number) override;
  Status SampleMasked(uint64_t number, std::vector<TokenMask> masks) override;
  bool Done(uint64_t) override {
    const auto event = tape_->Expect<DoneEvent>("asks whether a step is done");
    return event && event->done;
  }
  Result<StepOutput> Wait(uint64_t number) override;
  Status Reset() override;

 private:
  Status Over() { return Unavailable("the record ends here"); }
  Status Recorded(const Status& error) {
    ++report_->failures;
    return error;
  }
  // `status` comes from the real executor, for a call that succeeded in the record.
  Status Live(Status status) {
    if (!status.ok()) {
      tape_->Fail(
          status.WithContext("the executor failed in the replay, but not in the recorded run"));
    }
    return status;
  }

  Tape* const tape_;
  Executor* const inner_;
  const ExecutorLimits limits_;
  ReplayReport* const report_;
};

Status TapeExecutor::Submit(StepInput step) {
  tape_->next_step = step.number;
  const auto event = tape_->Expect<SubmitEvent>("submits a step");
  if (!event) return Over();
  if (event->number != step.number || event->num_rows != static_cast<int32_t>(step.rows.size()) ||
      event->digest != Digest(step)) {
    tape_->Fail(
        Internal("step {} with {} rows differs from the record, which has step {} with {} rows",
                 step.number, step.rows.size(), event->number, event->num_rows));
    return Over();
  }
  ++report_->steps;
  if (!event->status.ok()) return Recorded(event->status);
  return inner_ == nullptr ? Status() : Live(inner_->Submit(std::move(step)));
}

Status TapeExecutor::Sample(uint64_t number) {
  const auto event = tape_->Expect<SampleEvent>("samples a step");
  if (!event) return Over();
  if (!event->status.ok()) return Recorded(event->status);
  return inner_ == nullptr ? Status() : Live(inner_->Sample(number));
}

Status TapeExecutor::SampleMasked(uint64_t number, std::vector<TokenMask> masks) {
  const auto event = tape_->Expect<SampleEvent>("samples the masked rows of a step");
  if (!event) return Over();
  if (!event->status.ok()) return Recorded(event->status);
  return inner_ == nullptr ? Status() : Live(inner_->SampleMasked(number, std::move(masks)));
}

Result<StepOutput> TapeExecutor::Wait(uint64_t number) {
  auto event = tape_->Expect<WaitEvent>("waits for a step");
  if (!event) return Over();
  if (!event->status.ok()) return Recorded(event->status);
  for (const RowOutput& row : event->output.rows) {
    report_->tokens += static_cast<int64_t>(row.tokens.size());
  }
  if (inner_ == nullptr) return std::move(event->output);
  Result<StepOutput> live = inner_->Wait(number);
  if (!live.ok()) return Live(live.status());
  StepOutput output = *std::move(live);
  output.proposing_seconds = event->output.proposing_seconds;
  if (output == event->output) return output;
  Status difference = Internal("step {}: has {} rows, recorded were {}", number, output.rows.size(),
                               event->output.rows.size());
  for (size_t i = 0; i < output.rows.size() && i < event->output.rows.size(); ++i) {
    const RowOutput& now = output.rows[i];
    const RowOutput& then = event->output.rows[i];
    if (now == then) continue;
    const bool token =
        now.tokens.size() == 1 && then.tokens.size() == 1 && now.tokens[0] != then.tokens[0];
    difference = token ? Internal("step {} row {} (slot {}): got token {}, recorded was {}", number,
                                  i, now.slot, now.tokens[0], then.tokens[0])
                       : Internal(
                             "step {} row {} (slot {}): logprobs, proposals or health differ from "
                             "the recorded "
                             "ones",
                             number, i, now.slot);
    break;
  }
  tape_->Fail(difference);
  return difference;
}

Status TapeExecutor::Reset() {
  const auto event = tape_->Expect<ResetEvent>("resets the executor");
  if (!event) return Over();
  if (!event->status.ok()) return Recorded(event->status);
  return inner_ == nullptr ? Status() : Live(inner_->Reset());
}

Status CheckHeader(const RecordHeader& header, Executor* executor) {
  if (executor != nullptr) {
    const ExecutorLimits& limits = executor->limits();
    const bool same = limits.cache == header.limits.cache && limits.depth == header.limits.depth &&
                      limits.max_seqs == header.limits.max_seqs &&
                      limits.max_step_tokens == header.limits.max_step_tokens &&
                      limits.max_step_drafts == header.limits.max_step_drafts &&
                      limits.max_encoder_rows == header.limits.max_encoder_rows &&
                      limits.max_step_image_rows == header.limits.max_step_image_rows &&
                      limits.whole_image_rows == header.limits.whole_image_rows &&
                      limits.max_context == header.limits.max_context &&
                      limits.vocab_size == header.limits.vocab_size;
    if (!same) {
      return InvalidArgument(
          "the record was made with other limits: {} KV blocks, {} sequences, {} tokens per step, "
          "context {}; this executor has {}, {}, {} and {}",
          header.limits.cache.num_device_blocks, header.limits.max_seqs,
          header.limits.max_step_tokens, header.limits.max_context, limits.cache.num_device_blocks,
          limits.max_seqs, limits.max_step_tokens, limits.max_context);
    }
  }
  // The engine core allocates all blocks and slots up front, and the record may come from anywhere.
  constexpr int32_t kMaxBlocks = 1 << 24;
  constexpr int32_t kMaxSlots = 1 << 16;
  const CacheSpec& cache = header.limits.cache;
  if (cache.num_device_blocks > kMaxBlocks || cache.num_host_blocks > kMaxBlocks ||
      header.limits.max_seqs > kMaxSlots) {
    return InvalidArgument(
        "the record's limits are implausible: {} KV blocks, {} on the host, {} sequences",
        cache.num_device_blocks, cache.num_host_blocks, header.limits.max_seqs);
  }
  return Status();
}

}  // namespace

Result<ReplayReport> Replay(RecordReader reader, const ReplayOptions& options) {
  const RecordHeader header = reader.header();
  RETURN_IF_ERROR(CheckHeader(header, options.executor));
  ReplayReport report;
  Tape tape(std::move(reader));
  TapeClock clock(&tape);
  TapeExecutor executor(&tape, options.executor, header.limits, &report);
  ASSIGN_OR_RETURN(auto core, EngineCore::Create(header.options, &clock, &executor));
  while (tape.status().ok()) {
    std::optional<RecordEvent> event = tape.NextCall();
    if (!event) break;
    if (auto* arrival = std::get_if<ArrivalEvent>(&*event)) {
      ++report.requests;
      Arrival complete = std::move(arrival->arrival);
      if (options.on_arrival) options.on_arrival(*arrival, &complete);
      (void)core->Submit(std::move(complete));  // refused now if it was refused then
    } else if (const auto* cancel = std::get_if<CancelEvent>(&*event)) {
      core->Cancel(cancel->request);
    } else if (std::holds_alternative<CancelAllEvent>(*event)) {
      core->CancelAll();
    } else if (const auto* pause = std::get_if<PauseEvent>(&*event)) {
      core->Pause(pause->request);
    } else if (const auto* resume = std::get_if<ResumeEvent>(&*event)) {
      core->Resume(resume->request);
    } else if (const auto* lost = std::get_if<LostEvent>(&*event)) {
      ++report.failures;
      core->LoseExecutor(lost->error);
    } else if (std::holds_alternative<StepEvent>(*event)) {
      core->Step();
    } else {
      tape.Fail(DataLoss("step {}: the record goes on, but the replay did not", tape.next_step));
    }
  }
  if (!tape.status().ok()) return tape.status();
  return report;
}

}  // namespace tokamak
