// f16 as kernels use it.
#pragma once

#include <cstdint>

#include "quant/half.h"

struct __half {
  uint16_t bits;
};
inline __half __ushort_as_half(uint16_t bits) { return {bits}; }
inline float __half2float(__half value) { return tokamak::HalfToFloat(value.bits); }
