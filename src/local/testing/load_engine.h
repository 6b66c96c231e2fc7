// Loads engines for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "ops/cuda/cuda_ops.h"
#include "tokamak/engine.h"

namespace tokamak {

// A tiny model with random weights, on the CPU.
inline EngineOptions TinyOptions() {
  return {.model = TOKAMAK_SOURCE_DIR "/tests/golden/llama_tied.gguf",
          .device = "cpu",
          .threads = 2,
          .max_seqs = 4,
          .max_batch_tokens = 32,
          .num_blocks = 64};
}

// Null, and a failure of the test, if the engine cannot be loaded.
inline std::unique_ptr<Engine> Load(const EngineOptions& options = TinyOptions()) {
  Result<std::unique_ptr<Engine>> engine = Engine::Load(options);
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  return engine.ok() ? *std::move(engine) : nullptr;
}

// Why a test that needs so many GPUs cannot run here; empty if it can.
inline std::string LackOfGpus(int count) {
  const Status one = MakeCudaOps({.threads = 1}).status();
  if (!one.ok()) return "no CUDA backend here: " + one.ToString();
  return std::string(MakeCudaOps({.num_devices = count, .threads = 1}).status().message());
}

}  // namespace tokamak
