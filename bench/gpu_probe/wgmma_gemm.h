// Y[m, n] = X[m, k] W[n, k]^T in bf16 with the weights as wgmma's 64-row operand, on the device.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include "bench/gpu_probe/tensor_ptx.h"

namespace probe {

constexpr int kGemmK = 64;  // elements of k in a stage: the 128 bytes that a swizzle spans
constexpr int kGemmSharedBytes = 227 * 1024;

// The shape of a CTA when `kCtas` of them share an SM. It has as many stages as fit into its shared
// memory, at most 12.
template <int kRows, int kTokens, int kCtas>
struct GemmShape {
  static constexpr int kWarpgroups = kRows / 64;
  static constexpr int kThreads = 128 * kWarpgroups + 32;
  static constexpr int kWeightBytes = kRows * kGemmK * 2;
  static constexpr int kTokenBytes = kTokens * kGemmK * 2;
  static constexpr int kStageBytes = kWeightBytes + kTokenBytes;
  static constexpr int kFitting =
      (kGemmSharedBytes / kCtas - 3 * 1024) / kStageBytes;  // barriers, alignment, the system's
  static constexpr int kStages = kFitting < 12 ? kFitting : 12;
  static constexpr int kSharedBytes = kStages * kStageBytes + 2 * 1024;
};

// Stores a warp's 16 weight rows x kTokens: transposed in registers, so that each token's 16
// results fill a sector of 32 bytes.
template <int kTokens>
__device__ __forceinline__ void StoreTile(const float (&d)[kTokens / 2], __nv_bfloat16* y, int n0,
                                          int m0, int n, int m) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kTokens / 8; ++j) {
    uint32_t packed[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(d[4 * j + 2 * i], d[4 * j + 2 * i + 1]);
      packed[i] = Transpose8x8(*reinterpret_cast<const uint32_t*>(&pair));
    }
    const int token = m0 + 8 * j + lane / 4;
    if (token < m) {
      uint32_t* out = reinterpret_cast<uint32_t*>(y + int64_t{token} * n + n0) + lane % 4;
      out[0] = packed[0];
      out[4] = packed[1];
    }
  }
}

// Adds the partial sums of a cluster's CTAs, ascending in k, into those of its first CTA. Called by
// one warpgroup of each CTA, when all copies into `scratch` are done and read.
template <int kCount, int kSplit>
__device__ __forceinline__ void AddPartials(float (&d)[kCount], uint8_t* scratch, int rank) {
  float* mine = reinterpret_cast<float*>(scratch) + threadIdx.x;
  asm volatile("bar.sync 1, 128;\n" ::: "memory");
#pragma unroll
  for (int i = 0; i < kCount; ++i) mine[128 * i] = d[i];
  ClusterArrive();
  ClusterWait();
  if (rank == 0) {
#pragma unroll
    for (int other = 1; other < kSplit; ++other) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) d[i] += LoadCluster(mine + 128 * i, other);
    }
  }
  ClusterArrive();
  ClusterWait();  // no CTA ends while another reads its memory
}

// Persistent: CTA i takes tiles i, i + grid, ...; tiles of tokens are neighbours, so that CTAs that
// run together share weights in the L2. The last warp loads, each other warpgroup multiplies 64
// rows.
template <int kRows, int kTokens, int kCtas, int kSplit>
__global__ void __launch_bounds__(GemmShape<kRows, kTokens, kCtas>::kThreads, kCtas)
    WeightGemm(const __grid_constant__ CUtensorMap weights,
               const __grid_constant__ CUtensorMap tokens, __nv_bfloat16* y, int n, int m, int k) {
  using Shape = GemmShape<kRows, kTokens, kCtas>;
  extern __shared__ uint8_t memory[];
  uint8_t* stages = memory + ((1024 - (SharedAddress(memory) & 1023)) & 1023);
  uint64_t* full = reinterpret_cast<uint64_t*>(stages + Shape::kStages * Shape::kStageBytes);
  uint64_t* empty = full + Shape::kStages;
  const int warp = __shfl_sync(0xFFFFFFFF, static_cast<int>(threadIdx.x) / 32, 0);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shape::kStages; ++i) {
      InitBarrier(&full[i], 1);
      InitBarrier(&empty[i], 4 * Shape::kWarpgroups);  // each warp arrives
    }
    FenceBarrierInit();
  }
  __syncthreads();
  const int token_tiles = (m + kTokens - 1) / kTokens;
  const int tiles = token_tiles * (n / kRows), steps = k / kGemmK / kSplit;
  const int rank = blockIdx.x % kSplit, first_k = rank * steps * kGemmK;
  RingPosition at;
  if (warp == 4 * Shape::kWarpgroups) {
    if (threadIdx.x % 32 != 0) return;
    for (int tile = blockIdx.x / kSplit; tile < tiles; tile += gridDim.x / kSplit) {
      for (int step = 0; step < steps; ++step, at.Next(Shape::kStages)) {
        uint8_t* stage = stages + at.slot * Shape::kStageBytes;
        WaitParity(&empty[at.slot], at.parity ^ 1);
        ArriveExpect(&full[at.slot], Shape::kStageBytes);
        TensorCopy2(stage, &weights, first_k + step * kGemmK, tile / token_tiles * kRows,
                    &full[at.slot]);
        TensorCopy2(stage + Shape::kWeightBytes, &tokens, first_k + step * kGemmK,
                    tile % token_tiles * kTokens, &full[at.slot]);
      }
    }
    return;
  }
  const int warpgroup = warp / 4;
  for (int tile = blockIdx.x / kSplit; tile < tiles; tile += gridDim.x / kSplit) {
    float d[kTokens / 2] = {};
    PinRegisters(d);
    int previous = -1;
    for (int step = 0; step < steps; ++step, at.Next(Shape::kStages)) {
      WaitParity(&full[at.slot], at.parity);
      const uint32_t stage = SharedAddress(stages + at.slot * Shape::kStageBytes);
      const uint64_t a = Swizzled128Descriptor(stage + warpgroup * 64 * kGemmK * 2);
      const uint64_t b = Swizzled128Descriptor(stage + Shape::kWeightBytes);
      WgmmaFence();
#pragma unroll
      for (int i = 0; i < kGemmK / 16; ++i) {  // 32 bytes further: 2 units of the descriptor
        Wgmma<kTokens>::template Run<Type::kBf16>(d, a + 2 * i, b + 2 * i, step > 0 || i > 0);
      }
      WgmmaCommit();
      // The stage before is free once its products are done; this one's may still run.
      WgmmaWait<1>();
      if (previous >= 0 && threadIdx.x % 32 == 0) Arrive(&empty[previous]);
      previous = at.slot;
    }
    WgmmaWait<0>();
    PinRegisters(d);
    if (threadIdx.x % 32 == 0) Arrive(&empty[previous]);
    if constexpr (kSplit > 1) {
      static_assert(kRows == 64 && Shape::kStages * Shape::kStageBytes >= kRows * kTokens * 4);
      AddPartials<kTokens / 2, kSplit>(d, stages, rank);
      if (rank != 0) return;
    }
    StoreTile<kTokens>(d, y, tile / token_tiles * kRows + 16 * warp, tile % token_tiles * kTokens,
                       n, m);
  }
}

}  // namespace probe
