// The backends that models are tested on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/ops.h"

namespace tokamak::testing {

// The CPU backend once for every ISA that this machine has, the slowest first: "cpu/avx2", ...
std::vector<std::string> CpuBackendNames();
// The same after "reference".
std::vector<std::string> BackendNames();
// `threads` 0: one per core.
std::unique_ptr<Ops> MakeBackend(const std::string& name, int threads = 0);

}  // namespace tokamak::testing
