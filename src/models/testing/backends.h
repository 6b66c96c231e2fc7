// The backends that models are tested on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/host/communicator.h"
#include "ops/ops.h"

namespace tokamak::testing {

// "reference", then the CPU backend for every ISA of this machine, slowest first: "cpu/avx2", ...
// Sanitizer builds leave out "reference", in whose plain loops they find nothing.
std::vector<std::string> BackendNames();
// The same with f32 activations everywhere: "reference", "cpu/avx2/precise", ...
std::vector<std::string> PreciseBackendNames();
// `threads` 0: one per core. `communicator`: for one of several ranks.
std::unique_ptr<Ops> MakeBackend(const std::string& name, int threads = 0,
                                 std::shared_ptr<Communicator> communicator = nullptr);

}  // namespace tokamak::testing
