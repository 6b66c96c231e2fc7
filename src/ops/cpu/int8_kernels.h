// What an ISA with integer dot products supplies: Linear on activations in int8
// (quant/activation_row.h), and the making of them.
//
// The recipe of an output, the same for every number of rows and on every ISA: for each group of 32
// elements in ascending k, and in formats whose scales cover 16 for both halves of it,
//
//   sum = fma(float(Σ code · q) · scale, d, sum), then, in formats with a minimum,
//   sum = fma(min, d · float(Σ q), sum)
//
// from zero, the Σ exact in integers; then + bias.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace tokamak::cpu {

// Panels that one work item multiplies at most.
inline constexpr int kMaxInt8Panels = 8;

// out[t, n] for num_tokens rows of x and the outputs of num_panels panels of a block type.
struct Int8LinearTask {
  DType dtype = DType::kQ4_0;
  const std::byte* panels = nullptr;
  int64_t panel_bytes = 0;
  int num_panels = 0;
  int64_t cols = 0;              // whole blocks
  const std::byte* x = nullptr;  // rows of kI8Blocks
  int64_t x_stride = 0;          // bytes
  int64_t num_tokens = 0;
  const float* bias = nullptr;  // of the first output, or null
  float* out = nullptr;
  int64_t out_stride = 0;   // floats
  int64_t num_outputs = 0;  // <= 16 · num_panels
};

struct Int8Kernels {
  const char* name;
  // Tokens that one pass over the weights takes: multiples of it make good work items.
  int tokens_at_once;
  void (*linear)(const Int8LinearTask& task);
  // n elements (whole blocks) from element `first` on of a row of `cols` in all.
  void (*quantize)(const float* x, int64_t first, int64_t n, int64_t cols, std::byte* row);
};

// One per ISA folder; null where this build has no such ISA.
const Int8Kernels* Avx2Int8Kernels();
const Int8Kernels* AvxVnniInt8Kernels();
const Int8Kernels* Avx512VnniInt8Kernels();
const Int8Kernels* AmxInt8Kernels();

}  // namespace tokamak::cpu
