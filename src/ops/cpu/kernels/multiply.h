// The inner product of Linear and attention: acc[r][n] += Σ_k x[r][k] · w[k][n], for a tile w of
// f32 in panels of 16 columns. SIMD lanes are columns, so that each sum is one chain over ascending
// k.
//
// Bound: R · P · kVectors fused multiply-adds per k; loads of P · kVectors vectors and R scalars.
#pragma once

#include "ops/cpu/kernels.h"

namespace tokamak::cpu {

template <class V>
struct Multiply {
  using F = typename V::F;
  static constexpr int kVectors = 16 / V::kLanes;  // of a panel's 16 columns

  struct Args {
    const float* tile;     // [panels][...][k][16]
    int64_t panel_stride;  // floats between panels of the tile
    const float* x;        // [rows][k]
    int64_t x_stride;      // floats
    int k;
    float* acc;  // [rows][16 · panels]
    int64_t acc_stride;
  };

  // Panels to multiply at once: as many as there are registers for, to hide the latency of the
  // chains if rows are few.
  static constexpr int WidthFor(int rows) {
    int width = kMaxPanels;
    while (width > 1 && rows * width * kVectors > V::kMaxAccumulators) width /= 2;
    return width;
  }

  // Multiplies all rows and panels, in register blocks.
  static void Run(Args args, int64_t rows, int panels) {
    for (; rows > 0; rows -= V::kMaxRows) {
      switch (rows < V::kMaxRows ? rows : V::kMaxRows) {
        case 1:
          Panels<1>(args, panels);
          break;
        case 2:
          Panels<2>(args, panels);
          break;
        case 3:
          Panels<3>(args, panels);
          break;
        case 4:
          Panels<4>(args, panels);
          break;
        case 5:
          Panels<5>(args, panels);
          break;
        default:
          Panels<6>(args, panels);
          break;
      }
      args.x += V::kMaxRows * args.x_stride;
      args.acc += V::kMaxRows * args.acc_stride;
    }
  }

 private:
  template <int kRows>
  static void Panels(Args args, int panels) {
    if constexpr (kRows <= V::kMaxRows) {
      constexpr int kWidth = WidthFor(kRows);
      for (; panels >= kWidth; panels -= kWidth) {
        Block<kRows, kWidth>(args);
        args.tile += kWidth * args.panel_stride;
        args.acc += 16 * kWidth;
      }
      for (; panels > 0; --panels) {
        Block<kRows, 1>(args);
        args.tile += args.panel_stride;
        args.acc += 16;
      }
    }
  }

  template <int kRows, int kWidth>
  static void Block(const Args& args) {
    constexpr int kN = kWidth * kVectors;
    F sum[kRows][kN];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int n = 0; n < kN; ++n) {
        sum[r][n] = V::Load(args.acc + r * args.acc_stride + n * V::kLanes);
      }
    }
    const float* tile = args.tile;
    const float* x = args.x;
    for (int k = 0; k < args.k; ++k, tile += 16, ++x) {
      F w[kN];
#pragma GCC unroll 16
      for (int n = 0; n < kN; ++n) {
        w[n] = V::Load(tile + n / kVectors * args.panel_stride + n % kVectors * V::kLanes);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const F factor = V::Broadcast(x[r * args.x_stride]);
#pragma GCC unroll 16
        for (int n = 0; n < kN; ++n) sum[r][n] = V::Fma(w[n], factor, sum[r][n]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int n = 0; n < kN; ++n) {
        V::Store(args.acc + r * args.acc_stride + n * V::kLanes, sum[r][n]);
      }
    }
  }
};

}  // namespace tokamak::cpu
