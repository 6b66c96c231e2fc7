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

// Submits all requests at once, waits for their ends, and measures. The fields that describe the
// engine are filled in too; `load_s` is the engine's.
Result<BenchResult> RunLoad(Engine& engine, const std::vector<Load>& load);

// `length` tokens, uniform over the vocabulary, from a generator with this state.
std::vector<int32_t> RandomPrompt(int32_t length, int32_t vocab_size, uint64_t* state);
// Uniform in [low, high].
int32_t RandomInRange(int32_t low, int32_t high, uint64_t* state);

}  // namespace tokamak::cli
