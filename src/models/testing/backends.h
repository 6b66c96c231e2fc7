// The backends that models are tested on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/ops.h"

namespace tokamak::testing {

// "reference", and the CPU backend once for every ISA of this machine: "cpu/avx2", ...
std::vector<const char*> BackendNames();
std::unique_ptr<Ops> MakeBackend(const std::string& name);

}  // namespace tokamak::testing
