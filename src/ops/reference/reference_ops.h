// The reference backend: every operation as its definition reads, in double, one element after the
// other. Slow on purpose; what the other backends are tested against.
#pragma once

#include <memory>

#include "ops/ops.h"

namespace tokamak {

std::unique_ptr<Ops> MakeReferenceOps();

}  // namespace tokamak
