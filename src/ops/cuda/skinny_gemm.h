// Products of few tokens with a weight in bf16, by wgmma: for Hopper.
//
// out[m, n] = Σ_k x[m, k] · w[n, k] + bias[n]. Each output has one recipe, whatever M is: the
// columns are cut into `chunks` equal parts of whole 64s (the last may be shorter); a chunk is one
// chain of tensor-core products of 16 columns, ascending, from zero; chunks are added in f32 in
// ascending order; then the bias; then it is rounded to the type of `out`. cuBLASLt without split-K
// gives the bits of one chunk (docs/gpu-facts.md).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tokamak::cuda {

struct SkinnyGemmArgs {
  const void* x;       // bf16 [num_tokens, cols]
  const void* weight;  // bf16 [rows, cols], dense
  const float* bias;   // [rows], or null
  void* out;           // [num_tokens, rows]
  bool out_bf16;       // else f32
  int64_t num_tokens, rows, cols;
  int64_t x_stride, out_stride;  // elements
  int chunks;                    // 1, 2 or 4
};

// Launches up to `ctas` CTAs, as a dependent of the kernel ahead, which may write `x` and read
// `out`, but not write `weight` or `bias`. cudaErrorInvalidValue unless rows of x and of the weight
// begin at multiples of 16 bytes.
cudaError_t LaunchSkinnyGemm(const SkinnyGemmArgs& args, int ctas, cudaStream_t stream);

}  // namespace tokamak::cuda
