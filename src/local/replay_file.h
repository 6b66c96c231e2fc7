// Recording an engine's run, and replaying it from the file.
#pragma once

#include <string>

#include "engine/record.h"
#include "engine/replay.h"
#include "tokamak/engine.h"

namespace tokamak {

// The header of a record: the engine core's limits and settings, and the options that LoadParts
// needs to make the same executor. `isa` is the one in use, never "auto".
RecordHeader MakeRecordHeader(const EngineOptions& options, const std::string& isa,
                              const std::string& system_fingerprint, const EngineCoreOptions& core,
                              const ExecutorLimits& limits);

struct ReplayFileOptions {
  std::string path;
  std::string model;           // replaces the recorded path unless empty
  int32_t threads = 0;         // 0: one per physical core; results do not depend on it
  bool schedule_only = false;  // take the recorded tokens and repeat only the schedule
};

struct ReplayFileReport {
  ReplayReport counts;
  std::string recorded_fingerprint;
  std::string fingerprint;  // this run's; empty with schedule_only
};

// Loads the recorded model and repeats the run. Errors are those of LoadParts and Replay.
Result<ReplayFileReport> ReplayFile(const ReplayFileOptions& options);

}  // namespace tokamak
