// Conversion between f32 and every stored type, one row at a time. Block layouts are those of GGUF
// (ggml), described in quant/blocks.h; I8_BLOCKS is quant/activation_row.h's, with `n` the whole
// row. Plain integer types hold no weights and are refused by CHECK.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tokamak {

// Writes `n` floats (a whole number of blocks) from `source`. Bit-exact against the `gguf` Python
// package. `source` needs no alignment. Any bit pattern is accepted; bad scales give Inf or NaN.
void DequantizeRow(DType dtype, const void* source, int64_t n, float* destination);

// The nearest representable block values by plain rounding (no importance weights, no search):
// meant for tests and dummy weights, not for making model files. `n` is a whole number of blocks.
void QuantizeRow(DType dtype, const float* source, int64_t n, void* destination);

}  // namespace tokamak
