// Computes the memory that an engine will need before it allocates any.
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

// The bytes that the CUDA backend keeps for a weight.
WeightSizer CudaSizer(bool precise);
// Describes to a count the CPU backend that the options name.
Result<CountedBackend> CountedCpu(const EngineOptions& options, int32_t rank);
// Describes the CUDA backend to a count.
CountedBackend CountedCuda(bool precise);
// The same for one of a replica's ranks.
CountedBackend CountedCuda(const EngineOptions& options, int32_t rank);
// The same with what this backend can do.
CountedBackend CountedGpu(const Ops& ops, bool precise);

// kUnimplemented if the CUDA backend cannot keep a KV cache in the type that the options name.
Status CheckCudaCache(const EngineOptions& options);
// The same for the sizes of the model's heads and vocabulary.
Status CheckCudaSizes(const ModelSpec& spec);

// Parses EngineOptions::dummy_dtype: "q4_k" or "Q4_K".
Result<DType> ParseDummyType(std::string name);

// Tokens of a step on CPUs, by default.
inline constexpr int32_t kCpuBatchTokens = 512;

// Sets options of steps that are left open to what suits a GPU or a CPU.
void ChooseForDevice(EngineOptions& options, bool gpu);

// For a model with a state per sequence: turns off what such models cannot have, with a log line,
// or returns an error if `given` asks for it.
Status ChooseForModel(EngineOptions& options, const EngineOptions& given, const Model& model);

// The options for loading, without progress.
LoadOptions MakeLoadOptions(const EngineOptions& options);

// Requires a kv_cache_dtype other than kAuto.
RunnerShape MakeRunnerShape(const EngineOptions& options, const Model& model);

// Divides `available_bytes`, the free memory once weights are loaded, between KV cache and runner.
// `on_device`: the host tier uses other memory. `draft`: the draft model, or null.
Result<MemoryProfile> EstimateRunnerMemory(const Model& model, const EngineOptions& options,
                                           const RunnerShape& shape, int64_t available_bytes,
                                           bool on_device, const Model* draft = nullptr);

// Bytes of a loaded model, on a backend that keeps weights as they are stored: weights and RoPE
// tables. Reads no large weight.
Result<int64_t> LoadedBytes(const Checkpoint& checkpoint, const EngineOptions& options, Task task);

// Returns why a GPU does not run a model; if a CPU can, says so.
Status SuggestCpu(const Checkpoint& checkpoint, const EngineOptions& options, Task task,
                  const Status& refusal);

// kUnimplemented if the GPU's backend lacks features that the model needs; names all of them. The
// same if it lacks the KV cache's type (CheckCudaCache) or the model is too large for its kernels.
// kResourceExhausted if the weights (in bf16, or f32 with options.precise) do not fit into
// `free_bytes`, or for generation the weights and the runner; says what is needed, what is free,
// and what to lower. Reads only the checkpoint's header.
Status CheckFitsOnDevice(const Checkpoint& checkpoint, const EngineOptions& options, Task task,
                         int64_t free_bytes, const CountedBackend& gpu = {});

}  // namespace tokamak
