// Ops that compute nothing: what a model asks of a backend, for sizing memory.
#pragma once

#include <memory>

#include "ops/ops.h"

namespace tokamak {

std::unique_ptr<Ops> MakeCountOps();

}  // namespace tokamak
