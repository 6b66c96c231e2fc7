// Puts load on an engine and measures it.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/json_output.h"
#include "loadgen/workload.h"
#include "tokamak/engine.h"

namespace tokamak::cli {

// One request of a benchmark: random tokens in, a fixed number of tokens out.
struct Load {
  std::vector<int32_t> prompt;
  int32_t output_tokens = 0;
  float temperature = 0;  // 0: greedy
};

// The two phases of a run whose requests start together.
struct Phases {
  double prompts_s = 0;  // until the last request has its first token
  // After that: whole steps in which each request gets a token, or several if it has drafts, until
  // the first request ends.
  int64_t decode_steps = 0;   // tokens of one request
  int64_t decode_tokens = 0;  // of all requests
  double decode_s = 0;
  double decode_kv_bytes = 0;  // keys and values that these steps read
};

struct LoadRun {
  BenchResult result;  // over the whole run, with the fields that describe the engine
  Phases phases;
};

// Submits all requests at once, waits until they end, and measures.
Result<LoadRun> RunLoad(Engine& engine, const std::vector<Load>& load);

// Returns `length` tokens, uniform over the vocabulary.
std::vector<int32_t> RandomPrompt(int32_t length, int32_t vocab_size, loadgen::Random& random);
double PeakRssMb();

}  // namespace tokamak::cli
