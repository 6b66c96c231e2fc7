// bf16 as kernels use it. NaN payloads are kept as the host keeps them; a GPU makes each 0x7fff.
#pragma once

#include <cstdint>

#include "quant/half.h"

struct __nv_bfloat16 {
  uint16_t bits;
};
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return {tokamak::FloatToBFloat16(value)}; }
inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }
