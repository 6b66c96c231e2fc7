// What `bench throughput` and `bench latency` print and write.
#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli/json_output.h"
#include "tokamak/engine.h"

namespace tokamak::cli {

// A file in the format of chrome://tracing and ui.perfetto.dev: every step and, within it, every
// operation. Runs are shown one below the other. For the format see "Trace Event Format" in the
// Chromium project's catapult repository.
class TraceFile {
 public:
  static Result<TraceFile> Create(const std::string& path);

  void AddRun(const std::string& name, const Profile& profile);
  // Ends the file; an error if not all of it could be written.
  Status Finish();

 private:
  TraceFile(std::string path, std::FILE* file)
      : path_(std::move(path)), file_(file, &std::fclose) {}

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  int runs_ = 0;
};

struct ReportFlags {
  bool json = false;
  bool profile = false;  // where the time went, to stderr
  std::string trace;     // a TraceFile's path; empty: none
};

// Reports an engine's runs beside what its machine can do, which it measures first. Use:
// Create, then for each run Begin and Report, then Finish.
class Reporter {
 public:
  static Result<Reporter> Create(Engine& engine, const ReportFlags& flags);

  void Begin() { (void)engine_->TakeProfile(); }  // of what came before
  // Completes the result with what is known of the machine, and prints it.
  void Report(BenchResult result, const std::string& name);
  Status Finish() { return trace_ ? trace_->Finish() : Status(); }

 private:
  Reporter(Engine& engine, ReportFlags flags) : engine_(&engine), flags_(std::move(flags)) {}
  void MeasureMachine();

  Engine* engine_;
  ReportFlags flags_;
  std::optional<TraceFile> trace_;
  std::optional<CpuRoofline> roofline_;  // empty for a GPU
  double peak_rss_mb_ = 0;               // before the roofline was measured
};

}  // namespace tokamak::cli
