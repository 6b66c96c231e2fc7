// The reference backend: every operation as it is defined, in double, one element after another.
// Slow on purpose; other backends are tested against it.
#pragma once

#include <memory>

#include "ops/ops.h"

namespace tokamak {

std::unique_ptr<Ops> MakeReferenceOps();

}  // namespace tokamak
