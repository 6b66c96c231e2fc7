// AMX's kernels with their tile instructions emulated (testing/emulated_tiles.h). They need
// AVX-512.
#pragma once

#include "ops/cpu/bf16_kernels.h"

namespace tokamak::cpu {

const Bf16Kernels* EmulatedAmxBf16Kernels();

}  // namespace tokamak::cpu
