// Loading a model that is divided among ranks (tensor and pipeline parallelism), which are threads
// of this process. load_workers.h has worker processes load it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "executor/executor.h"
#include "models/model.h"
#include "ops/host/communicator.h"
#include "ops/ops.h"
#include "runner/runner.h"
#include "tokamak/engine.h"
#include "weights/checkpoint.h"

namespace tokamak {

class ThreadPool;

// A rank's backend, and its part of the model.
struct LoadedRank {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<const Model> model;
  std::unique_ptr<const Model> draft = {};               // null: no draft model
  std::shared_ptr<Communicator> communicator = nullptr;  // null: the only rank
};

// The memory that each rank's runner may use, so that all have the same number of blocks.
struct RanksMemory {
  std::vector<RunnerMemory> ranks;
  int64_t token_macs = 0;  // of all ranks
  int64_t logits_macs = 0;
};

// Refuses numbers of ranks and replicas that no model has.
Status CheckNumRanks(const EngineOptions& options);
// Ranks of all stages.
inline int32_t RanksPerReplica(const EngineOptions& options) {
  return options.tensor_parallel * options.pipeline_parallel;
}
inline int32_t NumRanks(const EngineOptions& options) {
  return RanksPerReplica(options) * options.data_parallel;
}
// The names and values of the options that make several ranks or replicas.
std::array<std::pair<const char*, int32_t>, 3> ParallelOptions(const EngineOptions& options);
// Refuses options that do not work together with several ranks or replicas.
Status CheckRanks(const EngineOptions& options);
// How the ranks of a replica exchange values.
SharedMemoryOptions GroupOptions(const EngineOptions& options);
// One communicator per rank; null ones if there is only one rank, or the ranks are processes.
Result<std::vector<std::shared_ptr<Communicator>>> MakeCommunicators(const EngineOptions& options);
// Compute threads of each rank.
int ThreadsPerRank(const EngineOptions& options);

// The options to load a rank with: they report progress over all ranks.
EngineOptions OptionsOfRank(const EngineOptions& options, int32_t rank);
// A backend on GPU `gpu`. `num_gpus`: that and those behind it must be there. `communicator`: if it
// is one of several ranks.
Result<std::unique_ptr<Ops>> MakeGpuOps(const EngineOptions& options, int gpu, int num_gpus,
                                        int threads, std::shared_ptr<Communicator> communicator);
// A rank's backend, or one that only counts if worker processes compute. It is on the CPU unless
// the options name a GPU, which is that of rank 0; other ranks have those behind it. On the CPU,
// without a pool, it has threads of its own.
Result<std::unique_ptr<Ops>> MakeRankOps(const EngineOptions& options, int32_t rank,
                                         std::shared_ptr<Communicator> communicator,
                                         ThreadPool* pool = nullptr);
// Loads the ranks that `ranks` lacks. Rank 0 computes with the threads of `pool`.
Status LoadOtherRanks(const Checkpoint& checkpoint, const EngineOptions& options,
                      const std::vector<std::shared_ptr<Communicator>>& communicators,
                      ThreadPool& pool, std::vector<LoadedRank>& ranks);

// Runs the first exchanges of one of several ranks on GPUs, which connect them and take some memory
// of each, and checks the values. All ranks must do so at the same time, each on a thread of its
// own, when all have loaded. Does nothing on a CPU or for a single rank.
Status TryExchanges(const LoadedRank& rank, const RunnerShape& shape);

// Sizes the caches, which together take what the options say for one replica. `free_bytes`: of each
// rank's device; empty for ranks on the CPU, which share main memory.
Result<RanksMemory> SizeCaches(const std::vector<LoadedRank>& ranks, const EngineOptions& options,
                               const RunnerShape& shape, const std::vector<int64_t>& free_bytes);
// Sizes the caches and makes the executor of all ranks of a replica, threads or processes.
// Completes `info`, which describes the model on rank 0.
Result<std::unique_ptr<Executor>> MakeExecutor(const Checkpoint& checkpoint,
                                               std::vector<LoadedRank> ranks,
                                               const EngineOptions& options, int32_t replica,
                                               ModelInfo& info);

}  // namespace tokamak
