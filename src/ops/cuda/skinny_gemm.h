// Products of few tokens with a weight in bf16, on tensor cores.
//
// out[m, n] = Σ_k x[m, k] · w[n, k] + bias[n]. Each output has one recipe, whatever M and the tile
// are: one chain of tensor-core products of 16 columns, ascending, from zero; then the bias; then
// it is rounded to the type of `out`. cuBLASLt without split-K gives the same bits
// (docs/gpu-facts.md). If gate and up are combined (GateUp in ops/ops.h), each is rounded to bf16
// first, as if it were written.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "ops/activation.h"
#include "ops/cuda/kernel_form.h"

namespace tokamak::cuda {

// Rows of the weight and tokens that a CTA multiplies at a time. The choice changes speed alone.
struct SkinnyTile {
  int rows = 0;
  int tokens = 0;
  bool operator==(const SkinnyTile&) const = default;
};

// All tiles that exist. Tiles of fewer than 64 rows are for weights with too few rows to give every
// SM a tile of 64.
inline constexpr std::array<SkinnyTile, 8> kSkinnyTiles = {
    {{64, 8}, {64, 16}, {64, 32}, {64, 64}, {32, 64}, {16, 8}, {16, 16}, {16, 32}}};

struct SkinnyGemmArgs {
  const void* x;       // bf16 [num_tokens, cols]
  const void* weight;  // bf16 [rows, cols], dense
  const float* bias;   // [rows], or null
  void* out;           // [num_tokens, rows]
  bool out_bf16;       // else f32
  int64_t num_tokens, rows, cols;
  int64_t x_stride, out_stride;  // elements
  // Half of the weight's rows are of gate, the others of up; `out` is activation(gate) · up, bf16
  // [num_tokens, rows / 2].
  bool gated = false;
  Activation activation = Activation::kSilu;
};

// Whether gate and up can be combined: silu or gelu_tanh, no bias, bf16, and gate has a multiple of
// eight rows.
bool FitsGatedSkinnyGemm(const SkinnyGemmArgs& args);

// Launches up to `ctas` CTAs, as a dependent of the kernel ahead, which may write `x` and read
// `out`, but not write `weight` or `bias`. cudaErrorInvalidValue unless `tile` is one of
// kSkinnyTiles, rows of x and of the weight begin at multiples of 16 bytes, what is gated fits, and
// the build has the form.
cudaError_t LaunchSkinnyGemm(const SkinnyGemmArgs& args, SkinnyTile tile, int ctas, KernelForm form,
                             cudaStream_t stream);

}  // namespace tokamak::cuda
