// Converts between f32 and every stored type, one row at a time. Block layouts are GGUF's (ggml),
// see quant/blocks.h. For I8_BLOCKS (quant/activation_row.h) `n` must be the whole row. Plain
// integer types hold no weights; CHECK refuses them.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tokamak {

// Writes `n` floats (whole blocks) from `source`, bit-identical to the `gguf` Python package.
// `source` needs no alignment. Accepts any bit pattern; bad scales give Inf or NaN.
void DequantizeRow(DType dtype, const void* source, int64_t n, float* destination);

// Rounds to the nearest representable values, without importance weights or search: meant for tests
// and dummy weights, not for making model files. `n` is a whole number of blocks.
void QuantizeRow(DType dtype, const float* source, int64_t n, void* destination);

}  // namespace tokamak
