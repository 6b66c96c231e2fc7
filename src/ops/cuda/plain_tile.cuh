// A tile of a plain product: 32 × 32 outputs of a CTA, from tiles of 32 along k in shared memory. A
// thread has kOutputs of a column. Each output is one chain of fused multiply-adds over ascending
// k.
#pragma once

#include <cstdint>

#include "ops/cuda/device.cuh"
#include "ops/cuda/launch.h"

namespace tokamak::cuda::plain {

inline constexpr int kTile = 32;
inline constexpr int kThreads = 256;
inline constexpr int kOutputs = kTile * kTile / kThreads;  // of a thread

// The place of a thread's outputs: the column, which is a row of the weight, and the token of the
// j-th one, both in the tile.
inline __device__ int Column() { return static_cast<int>(threadIdx.x % kTile); }
inline __device__ int Token(int j) {
  return static_cast<int>(threadIdx.x / kTile) + j * (kTile / kOutputs);
}

// Columns [k, k + kTile) of the rows [0, rows) that row(i) returns, zero outside of them.
template <typename Element, typename Row>
__device__ void Load(const Row& row, int64_t rows, int64_t cols, int64_t k,
                     float (&tile)[kTile][kTile + 1]) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kThreads) {
    const int64_t col = k + i % kTile;
    tile[i / kTile][i % kTile] =
        i / kTile < rows && col < cols ? Element::Load(row(i / kTile)[col]) : 0.0f;
  }
}

// Computes the tile of `tokens` rows of x and `rows` rows of the weight, which may be more than a
// tile has. x_row(i) and w_row(i) return their i-th rows, of `cols` columns. All threads call it.
template <typename X, typename Weight, typename XRow, typename WeightRow>
__device__ void Multiply(const XRow& x_row, int64_t tokens, const WeightRow& w_row, int64_t rows,
                         int64_t cols, float (&sums)[kOutputs]) {
  SHARED(x, float[kTile][kTile + 1]);
  SHARED(w, float[kTile][kTile + 1]);
#pragma unroll
  for (float& sum : sums) sum = 0;
  for (int64_t k = 0; k < cols; k += kTile) {
    Load<X>(x_row, tokens, cols, k, x);
    Load<Weight>(w_row, rows, cols, k, w);
    __syncthreads();
    for (int i = 0; i < kTile; ++i) {
#pragma unroll
      for (int j = 0; j < kOutputs; ++j) sums[j] = fmaf(x[Token(j)][i], w[Column()][i], sums[j]);
    }
    __syncthreads();
  }
}

}  // namespace tokamak::cuda::plain
