// An executor whose runner lives in this process.
#pragma once

#include <memory>

#include "executor/executor.h"
#include "models/model.h"
#include "ops/ops.h"
#include "runner/runner.h"

namespace tokamak {

// Takes ownership of `ops` and the models; `draft` may be null. `shape.depth` becomes
// limits().depth. A CPU runs work when it is submitted, so there a depth above 1 is useful in tests
// only.
Result<std::unique_ptr<Executor>> MakeInProcessExecutor(std::unique_ptr<Ops> ops,
                                                        std::unique_ptr<const Model> model,
                                                        const RunnerShape& shape,
                                                        const RunnerMemory& memory,
                                                        std::unique_ptr<const Model> draft = {});

}  // namespace tokamak
