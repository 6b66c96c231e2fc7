// The executor whose runner lives in this process.
#pragma once

#include <memory>

#include "executor/executor.h"
#include "models/model.h"
#include "ops/ops.h"
#include "runner/runner.h"

namespace tokamak {

// Owns what it is given. `shape.depth` becomes limits().depth: on a CPU, where work happens when it
// is submitted, more than 1 serves tests alone.
Result<std::unique_ptr<Executor>> MakeInProcessExecutor(std::unique_ptr<Ops> ops,
                                                        std::unique_ptr<const Model> model,
                                                        const RunnerShape& shape,
                                                        const RunnerMemory& memory);

}  // namespace tokamak
