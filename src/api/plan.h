// What an engine will need in memory, found before any of it is allocated.
#pragma once

#include <cstdint>
#include <string>

#include "models/model.h"
#include "models/registry.h"
#include "ops/count/count_ops.h"
#include "runner/memory_plan.h"
#include "runner/runner.h"
#include "tokamak/engine.h"
#include "weights/checkpoint.h"

namespace tokamak {

// EngineOptions::dummy_dtype: "q4_k" or "Q4_K".
Result<DType> ParseDummyType(std::string name);

// What loading takes of the options, but for progress. kInvalidArgument for one that is none.
Result<LoadOptions> MakeLoadOptions(const EngineOptions& options);

// kInvalidArgument for an option that is none.
Result<RunnerShape> MakeRunnerShape(const EngineOptions& options, const Model& model);

// Memory for the KV cache and the runner, of `available_bytes`, with the weights loaded.
// `on_device`: where the host tier is not.
Result<MemoryPlan> PlanRunner(const Model& model, const EngineOptions& options,
                              const RunnerShape& shape, int64_t available_bytes, bool on_device);

// What a model takes in memory when it is loaded, on a backend that keeps weights as they are
// stored: they and its tables of rotary angles. Reads no large weight.
Result<int64_t> LoadedBytes(const Checkpoint& checkpoint, const EngineOptions& options,
                            ModelTask task);

// kUnimplemented where the GPU's backend lacks operations that the model needs. kResourceExhausted,
// with what is needed, what is free and what to lower, where the weights or
// what the runner needs beside them will not fit its `free_bytes` of memory, where weights are kept
// in bf16. Reads the checkpoint's header, and no weights.
Status CheckFitsOnDevice(const Checkpoint& checkpoint, const EngineOptions& options,
                         int64_t free_bytes, const CountedBackend& gpu = {});

}  // namespace tokamak
