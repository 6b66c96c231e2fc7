// The AMX kernels with emulated tile instructions (testing/emulated_tiles.h). Require AVX512-VNNI.
#pragma once

#include "ops/cpu/bf16_kernels.h"
#include "ops/cpu/int8_kernels.h"

namespace tokamak::cpu {

const Int8Kernels* EmulatedAmxInt8Kernels();
const Bf16Kernels* EmulatedAmxBf16Kernels();

}  // namespace tokamak::cpu
