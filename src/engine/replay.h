// Replaying a record: the same calls, clock readings and completions, with or without an executor.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "engine/record.h"
#include "executor/executor.h"
#include "tokamak/status.h"

namespace tokamak {

struct ReplayReport {
  int64_t requests = 0;
  int64_t steps = 0;
  int64_t tokens = 0;    // drawn
  int64_t failures = 0;  // executor errors, which are repeated from the record
};

struct ReplayOptions {
  // Draws the tokens again, which must equal the recorded ones; its limits must equal the record's.
  // If null, the replay takes the recorded outputs and compares only the schedule.
  Executor* executor = nullptr;
  // Completes an arrival before it is submitted: adds decoders if `has_decoders` says so (stop
  // strings end generations), constraints, and a callback if the caller wants outputs.
  std::function<void(const ArrivalEvent&, Arrival*)> on_arrival;
};

// Repeats a run from its record and compares every StepInput and StepOutput. kDataLoss if the
// record is malformed; kInternal if the replay differs, naming the first such step.
Result<ReplayReport> Replay(RecordReader reader, const ReplayOptions& options);

}  // namespace tokamak
