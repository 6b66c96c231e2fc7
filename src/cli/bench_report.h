// What `bench throughput` and `bench latency` print.
#pragma once

#include "cli/json_output.h"
#include "tokamak/engine.h"

namespace tokamak::cli {

// To stdout: a JSON object, or text.
void PrintBench(const BenchResult& result, bool json);

// To stderr: what the steps since the last call were spent on; nothing without --profile.
void PrintProfile(Engine& engine);

// What the machine of a CPU engine can do at most, measured now. Leaves the process's peak of
// memory as if it had used none.
class Machine {
 public:
  explicit Machine(const ModelInfo& model);
  // Completes a result that came after.
  void Describe(BenchResult& result) const;

 private:
  std::optional<CpuCeiling> ceiling_;  // empty for a GPU
  double peak_rss_mb_ = 0;             // before the measurement
};

}  // namespace tokamak::cli
