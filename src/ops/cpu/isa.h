// Which instruction sets this build has and this machine can run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ops/cpu/kernels.h"
#include "tokamak/status.h"

namespace tokamak::cpu {

// The kernels of the named ISA; of the best one for "auto". kInvalidArgument when there is no such
// ISA, kUnimplemented with the reason when it cannot run here.
Result<const Kernels*> ChooseKernels(std::string_view isa);

}  // namespace tokamak::cpu
