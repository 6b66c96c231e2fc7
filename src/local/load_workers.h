// Loading a model whose ranks are worker processes.
#pragma once

#include <memory>
#include <vector>

#include "executor/executor.h"
#include "local/load_ranks.h"
#include "tokamak/engine.h"
#include "weights/checkpoint.h"

namespace tokamak {

// Refuses options that do not work together with worker processes.
Status CheckWorkers(const EngineOptions& options);

// A backend without weights, which stands for that of a worker: it tells what the worker's would.
Result<std::unique_ptr<Ops>> MakeCountedRank(const EngineOptions& options, int32_t rank);

// Starts the workers and makes their executor. `ranks` hold the model without its weights
// (MakeCountedRank); they live as long as the executor. Completes `info`, as MakeExecutor does.
Result<std::unique_ptr<Executor>> MakeWorkersExecutor(const Checkpoint& checkpoint,
                                                      std::vector<LoadedRank> ranks,
                                                      const EngineOptions& options, int32_t replica,
                                                      ModelInfo& info);

}  // namespace tokamak
