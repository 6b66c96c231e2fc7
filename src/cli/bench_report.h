// The output of `bench throughput` and `bench latency`.
#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli/json_output.h"
#include "tokamak/engine.h"

namespace tokamak::cli {

// A trace for chrome://tracing and ui.perfetto.dev: each step and, within it, each operation. Runs
// appear one below the other. For the format see "Trace Event Format" in the Chromium project's
// catapult repository.
class TraceFile {
 public:
  static Result<TraceFile> Create(const std::string& path);

  void AddRun(const std::string& name, const Profile& profile);
  // Ends the file. An error if it could not be written completely.
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
  bool profile = false;  // prints to stderr where the time went
  std::string trace;     // path of a TraceFile; empty: none
};

// Reports an engine's runs next to its machine's roofline, which it measures first. Call Create,
// then Begin and Report for each run, then Finish.
class Reporter {
 public:
  static Result<Reporter> Create(Engine& engine, const ReportFlags& flags);

  void Begin() { (void)engine_->TakeProfile(); }  // drops what came before
  // Adds what is known of the machine to the result and prints it.
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
