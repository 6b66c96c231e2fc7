// Models of the golden tests on worker processes.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tokamak/engine.h"

namespace tokamak {

inline constexpr char kGoldens[] = TOKAMAK_SOURCE_DIR "/tests/golden/";

inline EngineOptions OnWorkers(const std::string& model, int32_t ranks,
                               WorkerKind workers = WorkerKind::kProcesses, int32_t stages = 1) {
  return {.model = kGoldens + model,
          .device = "cpu",
          .precise = true,
          .threads = ranks * stages,
          .tensor_parallel = ranks,
          .pipeline_parallel = stages,
          .workers = workers,
          .worker_program = TOKAMAK_PROGRAM,
          .max_seqs = 4,
          .max_batch_tokens = 64,
          .block_size = 4,
          .num_blocks = 400};
}

inline Request MakeRequest(SamplingParams sampling, int32_t max_tokens = 40) {
  Request request{.token_ids = {5, 9, 40, 3, 17, 100, 8}};
  request.sampling = std::move(sampling);
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = 2;
  return request;
}

inline OutputChunk Answer(Engine& engine, const Request& request) {
  Result<std::vector<OutputChunk>> answer = engine.Generate(request);
  EXPECT_TRUE(answer.ok()) << answer.status().ToString();
  return answer.ok() ? std::move((*answer)[0]) : OutputChunk();
}

}  // namespace tokamak
