// The reference backend: every operation as it is defined, in double, one element after another.
// Slow on purpose; other backends are tested against it.
#pragma once

#include <memory>

#include "ops/host/communicator.h"
#include "ops/ops.h"

namespace tokamak {

// `communicator`: set if the backend is one of several ranks.
std::unique_ptr<Ops> MakeReferenceOps(std::shared_ptr<Communicator> communicator = nullptr);

}  // namespace tokamak
