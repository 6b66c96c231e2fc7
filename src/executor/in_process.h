// The executor whose runner lives in this process.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "executor/executor.h"
#include "models/model.h"
#include "ops/ops.h"
#include "runner/runner.h"

namespace tokamak {

// What a runner works with, in the order in which it has to be made.
struct RunnerParts {
  std::unique_ptr<ThreadPool> pool;  // null when ops needs none
  std::unique_ptr<Ops> ops;
  std::unique_ptr<const Model> model;
};

// Owns the parts. `shape.depth` becomes limits().depth: on a CPU, where work happens when it is
// submitted, more than 1 serves tests alone.
Result<std::unique_ptr<Executor>> MakeInProcessExecutor(RunnerParts parts, const RunnerShape& shape,
                                                        const RunnerMemory& memory);

}  // namespace tokamak
