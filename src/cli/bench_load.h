// Putting load on an engine and measuring what comes back.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/json_output.h"
#include "tokamak/engine.h"

namespace tokamak::cli {

// One request of a benchmark: random tokens in, a fixed number of tokens out.
struct Load {
  std::vector<int32_t> prompt;
  int32_t output_tokens = 0;
};

// The two parts of a run whose requests start together.
struct Phases {
  double prompts_s = 0;  // until the last request has its first token
  // From then on, whole steps in which every request gets one token, until the first one ends.
  int64_t decode_steps = 0;
  double decode_s = 0;
  double decode_kv_bytes = 0;  // of keys and values that these steps read
};

struct LoadRun {
  BenchResult result;  // over the whole run; the fields that describe the engine are filled in
  Phases phases;
};

// Submits all requests at once, waits for their ends, and measures.
Result<LoadRun> RunLoad(Engine& engine, const std::vector<Load>& load);

// `length` tokens, uniform over the vocabulary, from a generator with this state.
std::vector<int32_t> RandomPrompt(int32_t length, int32_t vocab_size, uint64_t* state);
// Uniform in [low, high].
int32_t RandomInRange(int32_t low, int32_t high, uint64_t* state);
// The process's peak of memory so far.
double PeakRssMb();
// Nearest rank.
Percentiles PercentilesOf(std::vector<double> values);

}  // namespace tokamak::cli
