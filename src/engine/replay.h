// Replaying a record: the same calls, clock and completions, on the same executor or on none.
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
  // Draws the tokens anew; they must be the recorded ones. Its limits must be those of the record.
  // Null: the recorded outputs are taken, and only the schedule is compared.
  Executor* executor = nullptr;
  // Completes an arrival before it is submitted: decoders where `has_decoders` says so (for
  // stop strings end generations), and a callback if outputs are wanted.
  std::function<void(const ArrivalEvent&, Arrival*)> on_arrival;
};

// Repeats a run from its record and compares every StepInput and StepOutput. kDataLoss if the
// record is malformed; kInternal, naming the step, where the repetition first differs.
Result<ReplayReport> Replay(RecordReader reader, const ReplayOptions& options);

}  // namespace tokamak
