// Records a run: everything that the engine core is given, so that the run can be repeated.
//
// File: 8 bytes "tokamakR", then frames. A frame is a varint length, that many bytes of payload and
// 4 bytes of checksum. A payload is a kind and its fields (record_codec.h, base/codec.h); the first
// is a RecordHeader.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "engine/arrival.h"
#include "engine/engine_core.h"
#include "executor/executor.h"
#include "step/step_codec.h"
#include "tokamak/status.h"

namespace tokamak {

inline constexpr int32_t kRecordVersion = 17;

// The events of a record: its header, then the calls of the engine core in order. The clock
// readings and executor calls of a Step follow its StepEvent.
struct RecordHeader {
  int32_t version = kRecordVersion;
  uint64_t step_version = kStepVersion;
  // For the reader's use: model, device and whatever else it needs to make the executor.
  std::vector<std::pair<std::string, std::string>> properties;
  EngineCoreOptions options;  // without callbacks
  ExecutorLimits limits;

  bool has_known_version() const {
    return version == kRecordVersion && step_version == kStepVersion;
  }
};
// Has the values of images, too, so that a replay needs nothing else to compute every token again.
struct ArrivalEvent {
  Arrival arrival;  // without decoders, constraints and callback
  bool has_decoders = false;
};
struct CancelEvent {
  RequestId request = 0;
};
struct CancelAllEvent {};
struct PauseEvent {
  RequestId request = 0;
};
struct ResumeEvent {
  RequestId request = 0;
};
struct LostEvent {
  Status error;  // Executor::Lost
};
struct StepEvent {};
struct ClockEvent {
  int64_t nanoseconds = 0;
};
struct SubmitEvent {
  uint64_t number = 0;
  int32_t num_rows = 0;
  uint64_t digest = 0;  // hash of the StepInput's bytes
  Status status;
};
struct SampleEvent {  // Sample or SampleMasked
  Status status;
};
struct DoneEvent {
  bool done = false;
};
struct WaitEvent {
  Status status;
  StepOutput output;  // if OK; without expert_loads
};
struct ResetEvent {
  Status status;
};
using RecordEvent = std::variant<RecordHeader, ArrivalEvent, CancelEvent, CancelAllEvent, StepEvent,
                                 ClockEvent, SubmitEvent, SampleEvent, DoneEvent, WaitEvent,
                                 ResetEvent, PauseEvent, ResumeEvent, LostEvent>;

uint64_t Digest(const StepInput& step);

// Writes a record. Owned by the engine thread. The first write error is logged and ends the
// recording, but not the run.
class RecordWriter {
 public:
  static Result<std::unique_ptr<RecordWriter>> Create(const std::string& path,
                                                      const RecordHeader& header);
  ~RecordWriter();  // flushes

  void Write(const RecordEvent& event);
  // Call it before EngineCore::Submit.
  void WriteArrival(const Arrival& arrival);
  Status Flush();

 private:
  RecordWriter(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  int fd_;
  std::string buffer_;
};

// Reads the events of a record from memory. Strict: bytes that Write would not have written are
// kDataLoss with their offset. Allocates no more than the bytes can hold.
class RecordReader {
 public:
  // `name` appears in messages; `bytes` must outlive the reader.
  static Result<RecordReader> Open(std::string name, std::string_view bytes);

  const RecordHeader& header() const { return header_; }
  // Returns the next event, or nullopt at the end.
  Result<std::optional<RecordEvent>> Next();

 private:
  RecordReader(std::string name, std::string_view bytes) : name_(std::move(name)), bytes_(bytes) {}

  std::string name_;
  std::string_view bytes_;
  size_t offset_ = 0;
  RecordHeader header_;
};

// Wrappers around the engine core's clock and executor that record every call.
class RecordingClock final : public Clock {
 public:
  RecordingClock(Clock* inner, RecordWriter* writer) : inner_(inner), writer_(writer) {}
  TimePoint Now() override;

 private:
  Clock* const inner_;
  RecordWriter* const writer_;
};

class RecordingExecutor final : public Executor {
 public:
  RecordingExecutor(Executor* inner, RecordWriter* writer) : inner_(inner), writer_(writer) {}
  const ExecutorLimits& limits() const override { return inner_->limits(); }
  Status Submit(StepInput step) override;
  Status Sample(uint64_t number) override;
  Status SampleMasked(uint64_t number, std::vector<TokenMask> masks) override;
  bool Done(uint64_t number) override;
  void Expect(double seconds) override { inner_->Expect(seconds); }
  Result<StepOutput> Wait(uint64_t number) override;
  Status Reset() override;
  Status Lost() override { return inner_->Lost(); }
  void OnLost(const std::function<void()>& wake) override { inner_->OnLost(wake); }

 private:
  Executor* const inner_;
  RecordWriter* const writer_;
};

}  // namespace tokamak
