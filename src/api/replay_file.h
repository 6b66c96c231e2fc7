// Recording a run of an engine, and repeating it from its file.
#pragma once

#include <string>

#include "engine/record.h"
#include "engine/replay.h"
#include "tokamak/engine.h"

namespace tokamak {

// What a record starts with: the limits and settings of the engine core, and the options that
// LoadParts needs to make the same executor again. `isa` is the one in use, never "auto".
RecordHeader MakeRecordHeader(const EngineOptions& options, const std::string& isa,
                              const std::string& system_fingerprint, const EngineCoreOptions& core,
                              const ExecutorLimits& limits);

struct ReplayFileOptions {
  std::string path;
  std::string model;           // instead of the recorded path; empty: that one
  int32_t threads = 0;         // results do not depend on it; 0: one per physical core
  bool schedule_only = false;  // take the recorded tokens and repeat the decisions alone
};

struct ReplayFileReport {
  ReplayReport counts;
  std::string recorded_fingerprint;
  std::string fingerprint;  // of this run; empty with schedule_only
};

// Loads the recorded model and repeats the run. Errors: those of LoadParts and Replay.
Result<ReplayFileReport> ReplayFile(const ReplayFileOptions& options);

}  // namespace tokamak
