// The instruction sets that this build has and this machine can run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ops/cpu/bf16_kernels.h"
#include "ops/cpu/int8_kernels.h"
#include "ops/cpu/kernels.h"
#include "tokamak/status.h"

namespace tokamak::cpu {

// Suffix that leaves out an ISA's int8 and bf16 kernels.
inline constexpr std::string_view kPrecise = "/precise";

struct IsaKernels {
  std::string_view name;
  const Kernels* kernels = nullptr;
  // Null: f32 activations.
  const Int8Kernels* int8 = nullptr;
  const Bf16Kernels* bf16 = nullptr;
};

// The name of a backend with these kernels, such as "cpu/avx512" or "cpu/avx2/precise".
std::string BackendName(const IsaKernels& isa);

// Returns the kernels of the named ISA; for "auto", of the best one. kInvalidArgument if there is
// no such ISA, kUnimplemented with the reason if it cannot run here.
Result<IsaKernels> ChooseKernels(std::string_view isa);

}  // namespace tokamak::cpu
