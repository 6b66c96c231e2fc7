// Measures what a rank does, for monitoring.
#pragma once

#include <memory>

#include "executor/executor.h"
#include "ops/host/communicator.h"

namespace tokamak {

// Calls the rank's own executor, and has its rank_stats. `communicator`: null if there is no other
// rank.
std::unique_ptr<Executor> MeasureRank(std::unique_ptr<Executor> executor,
                                      std::shared_ptr<const Communicator> communicator);

}  // namespace tokamak
