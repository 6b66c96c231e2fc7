// The memory that an engine will need, found before any of it is allocated.
#pragma once

#include <cstdint>
#include <string>

#include "models/model.h"
#include "models/registry.h"
#include "ops/count/count_ops.h"
#include "runner/memory_profile.h"
#include "runner/runner.h"
#include "tokamak/engine.h"
#include "weights/checkpoint.h"

namespace tokamak {

// EngineOptions::dummy_dtype: "q4_k" or "Q4_K".
Result<DType> ParseDummyType(std::string name);

// The options that loading needs, without progress. kInvalidArgument for a value that is wrong.
Result<LoadOptions> MakeLoadOptions(const EngineOptions& options);

// kInvalidArgument for an option that is none.
Result<RunnerShape> MakeRunnerShape(const EngineOptions& options, const Model& model);

// Memory for the KV cache and the runner, of `available_bytes`, with the weights loaded.
// `on_device`: where the host tier is not.
Result<MemoryProfile> PlanRunner(const Model& model, const EngineOptions& options,
                                 const RunnerShape& shape, int64_t available_bytes, bool on_device);

// The memory that a loaded model takes on a backend that keeps weights as they are stored: the
// weights and the tables of rotary angles. Reads no large weight.
Result<int64_t> LoadedBytes(const Checkpoint& checkpoint, const EngineOptions& options,
                            ModelTask task);

// kUnimplemented if the GPU's backend lacks operations that the model needs. kResourceExhausted,
// with what is needed, what is free and what to lower, if the weights, kept in bf16 or, if
// `options` are precise, in f32, or what the runner needs beside them will not fit its `free_bytes`
// of memory. Reads the checkpoint's header and no weights.
Status CheckFitsOnDevice(const Checkpoint& checkpoint, const EngineOptions& options,
                         int64_t free_bytes, const CountedBackend& gpu = {});

}  // namespace tokamak
