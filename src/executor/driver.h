// An executor of several ranks that compute every step together (tensor parallelism), or one stage
// after another (pipeline parallelism).
#pragma once

#include <memory>
#include <vector>

#include "executor/executor.h"
#include "ops/host/communicator.h"

namespace tokamak {

// A rank's executor and its place in the group.
struct Rank {
  std::unique_ptr<Executor> executor;
  std::shared_ptr<Communicator> communicator;
};

// Gives each call to all ranks, in the same order: to rank 0 on the calling thread, to the others
// on threads of their own. The ranks of the last stage draw the same tokens; the output is theirs,
// and an error if another rank's differs. Masks go to them alone. If one rank fails, the others get
// its error at once. kInternal if the ranks' limits differ in more than the bytes of their caches.
Result<std::unique_ptr<Executor>> MakeDriverExecutor(std::vector<Rank> ranks);

}  // namespace tokamak
