// If K is split into 2 or 4 chunks, should their partial sums meet in a CTA or in a cluster?
//
// y[M, N] = x[M, K] W[N, K]^T. A tile is 16 weight rows. One warp per chunk of K requests stages of
// these rows and of the M token rows by bulk copies, into a ring of its own, and multiplies them.
// The warps of a tile are one CTA and their sums meet in its shared memory; or each is a CTA of a
// cluster, and the sums meet in the shared memory of rank 0. Everything else is the same: four
// warps on an SM, their rings, and a warp that waits for the others' sums of a tile only when it
// has multiplied its next one. Partial sums are added in ascending order of K, so that both ways
// must agree bit for bit.
//
// Decides: where the GEMMs of decode split K, and into how many chunks, by shape.
#include <cuda_bf16.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/gpu_probe/gemm_host.h"
#include "bench/gpu_probe/launch.h"
#include "bench/gpu_probe/probe.h"
#include "bench/gpu_probe/reference.h"
#include "bench/gpu_probe/tensor_ptx.h"

namespace probe {
namespace {

constexpr int kRows = 16;  // of a tile
constexpr int kWarpsOnSm = 4;
// Four of these, with the 1 KB that the system takes from each CTA, are all of an SM's shared
// memory.
constexpr int kWarpBytes = 56 * 1024;
constexpr int kMostChunks = 4;

template <int M>
struct Shape {
  static constexpr int kTokens = M > 8 ? 16 : 8;  // of a tile
  static constexpr int kColumns = M > 8 ? 128 : 256;
  static constexpr int kRowBytes = 2 * kColumns + 64;  // padded: two rows fill all banks
  static constexpr int kStageBytes = (kRows + M) * kRowBytes;
  static constexpr int kSumStride = kTokens + 2;  // of rows of partial sums: no bank conflicts
  static constexpr int kSumBytes = kRows * kSumStride * 4;
  // The same for all variants: as many as fit into a warp's memory beside the sums of four chunks.
  static constexpr int kStages = (kWarpBytes - 2 * kMostChunks * kSumBytes - 256) / kStageBytes;
  static_assert(kStages >= 3);
};

struct Product {
  const __nv_bfloat16 *w, *x;
  __nv_bfloat16* y;
  int n, k;
};

__device__ __forceinline__ uint4 LoadShared(const uint8_t* from) {
  return *reinterpret_cast<const uint4*>(from);
}

// A warp's ring of stages: what it has requested, and what it multiplies.
template <int M>
struct Ring {
  using S = Shape<M>;
  using Sums = float[S::kTokens / 8][4];

  const Product& p;
  uint8_t* stages;
  uint64_t* full;
  int tiles, stride, first_column, steps;
  int tile, step = 0;  // of the next request
  RingPosition ahead = {}, at = {};

  __device__ void Request() {
    if (tile >= tiles) return;
    const int lane = threadIdx.x % 32;
    if (lane == 0) ArriveExpect(&full[ahead.slot], (kRows + M) * 2 * S::kColumns);
    __syncwarp();
    if (lane < kRows + M) {
      const __nv_bfloat16* row = lane < kRows ? p.w + (int64_t{tile} * kRows + lane) * p.k
                                              : p.x + int64_t{lane - kRows} * p.k;
      BulkCopy(stages + ahead.slot * S::kStageBytes + lane * S::kRowBytes,
               row + first_column + step * S::kColumns, 2 * S::kColumns, &full[ahead.slot]);
    }
    ahead.Next(S::kStages);
    if (++step == steps) {
      step = 0;
      tile += stride;
    }
  }

  // Adds the products of this warp's chunk of a tile to `sum`, in the layout of m16n8k16.
  __device__ void MultiplyTile(Sums& sum) {
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    for (int i = 0; i < steps; ++i) {
      WaitParity(&full[at.slot], at.parity);
      const uint8_t* weights = stages + at.slot * S::kStageBytes + g * S::kRowBytes + q * 16;
#pragma unroll 4
      for (int c = 0; c < S::kColumns / 32; ++c, weights += 64) {
        const uint4 low = LoadShared(weights), high = LoadShared(weights + 8 * S::kRowBytes);
#pragma unroll
        for (int j = 0; j < S::kTokens / 8; ++j) {
          uint4 x{};
          if (M >= 8 || g < M) x = LoadShared(weights + (kRows + 8 * j) * S::kRowBytes);
          Mma<Type::kBf16>(sum[j], {low.x, high.x, low.y, high.y}, {x.x, x.y});
          Mma<Type::kBf16>(sum[j], {low.z, high.z, low.w, high.w}, {x.z, x.w});
        }
      }
      FenceAsyncProxy();
      __syncwarp();
      Request();  // into the slot that was just read: the ring is one round ahead
      at.Next(S::kStages);
    }
  }
};

// The two buffers in which the partial sums of a tile meet; tiles take them in turn. A cluster uses
// the buffers of rank 0.
template <int M, int kChunks, bool kCluster>
struct Meeting {
  using S = Shape<M>;

  float (*partial)[kChunks][kRows][S::kSumStride];
  uint64_t *stored, *taken;  // [2]; each rank of a cluster waits for its own `taken`
  int chunk;

  __device__ void Init() const {
    for (int i = 0; i < 2; ++i) {
      InitBarrier(&stored[i], kCluster ? 1 : kChunks);
      InitBarrier(&taken[i], 1);
    }
  }

  // Stores the partial sums of this CTA's or cluster's tile number `i`.
  __device__ void Store(int i, const typename Ring<M>::Sums& sum) const {
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, buffer = i & 1;
    if constexpr (kCluster) {
      WaitParity<true>(&taken[buffer], (i >> 1 & 1) ^ 1);
      if (chunk == 0 && lane == 0) {
        ArriveExpect(&stored[buffer], kChunks * kRows * S::kTokens * 4);
      }
      __syncwarp();
    }
#pragma unroll
    for (int j = 0; j < S::kTokens / 8; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float* to = &partial[buffer][chunk][g + 8 * half][8 * j + 2 * q];
        const float x = sum[j][2 * half], y = sum[j][2 * half + 1];
        if constexpr (kCluster) {
          SendCluster(to, &stored[buffer], 0, x, y);
        } else {
          *reinterpret_cast<float2*>(to) = make_float2(x, y);
        }
      }
    }
    if constexpr (!kCluster) {
      __syncwarp();
      if (lane == 0) Arrive(&stored[buffer]);
    }
  }

  // Adds the partial sums of tile number `i`, ascending in K, and stores the results. Tile i + 2
  // uses the same buffer. In a CTA, a warp stores sums of tile i + 2 only after all warps have
  // stored those of tile i + 1, so all have read those of tile i. In a cluster, rank 0 says when it
  // has.
  __device__ void Finish(const Product& p, int i, int tile) const {
    if (kCluster && chunk != 0) return;
    const int buffer = i & 1;
    WaitParity<kCluster>(&stored[buffer], i >> 1 & 1);
    for (int at = threadIdx.x; at < M * kRows; at += blockDim.x) {
      const int token = at / kRows, row = at % kRows;
      float total = partial[buffer][0][row][token];
#pragma unroll
      for (int c = 1; c < kChunks; ++c) total += partial[buffer][c][row][token];
      p.y[int64_t{token} * p.n + tile * kRows + row] = __float2bfloat16(total);
    }
    if constexpr (kCluster) {
      __syncwarp();
      if (threadIdx.x < kChunks) ArriveCluster(&taken[buffer], threadIdx.x);
      __syncwarp();
    }
  }
};

__device__ __forceinline__ void MeetCluster() {
  __syncwarp();
  ClusterArrive();
  ClusterWait();
}

template <int M, int kChunks, bool kCluster>
__global__ void __launch_bounds__(kCluster ? 32 : 32 * kChunks) MultiplyChunks(const Product p) {
  using S = Shape<M>;
  constexpr int kWarps = kCluster ? 1 : kChunks, kCtas = kCluster ? kChunks : 1;  // of a tile
  extern __shared__ __align__(128) uint8_t stages[];
  __shared__ __align__(16) float partial[2][kChunks][kRows][S::kSumStride];
  __shared__ uint64_t full[kWarps][S::kStages], stored[2], taken[2];
  const int warp = threadIdx.x / 32, chunk = kCluster ? static_cast<int>(ClusterRank()) : warp;
  const Meeting<M, kChunks, kCluster> meeting{partial, stored, taken, chunk};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kWarps * S::kStages; ++i) InitBarrier(&full[0][0] + i, 1);
    meeting.Init();
    FenceBarrierInit();
  }
  __syncthreads();
  const int tiles = p.n / kRows, stride = gridDim.x / kCtas, first = blockIdx.x / kCtas;
  const int columns = p.k / kChunks;
  Ring<M> ring{p,
               stages + warp * S::kStages * S::kStageBytes,
               full[warp],
               tiles,
               stride,
               chunk * columns,
               columns / S::kColumns,
               first};
  for (int i = 0; i < S::kStages; ++i) ring.Request();
  if constexpr (kCluster) MeetCluster();  // no CTA touches another's memory before that one runs
  int count = 0;                          // of tiles before this one
  for (int tile = first; tile < tiles; tile += stride, ++count) {
    typename Ring<M>::Sums sum = {};
    ring.MultiplyTile(sum);
    if (count > 0) meeting.Finish(p, count - 1, tile - stride);
    meeting.Store(count, sum);
  }
  if (count > 0) meeting.Finish(p, count - 1, first + (count - 1) * stride);
  if constexpr (kCluster) MeetCluster();  // no CTA ends before its `taken` has been arrived at
}

// Host ------------------------------------------------------------------------------------------

struct Variant {
  int chunks;
  bool cluster;
  void (*kernel)(Product);
  int dynamic_bytes, teams;  // shared memory; tiles at a time
};

template <int M, int kChunks, bool kCluster>
Variant Make() {
  using S = Shape<M>;
  constexpr int kWarps = kCluster ? 1 : kChunks;
  Variant v{kChunks, kCluster, MultiplyChunks<M, kChunks, kCluster>,
            kWarps * S::kStages * S::kStageBytes, 0};
  AllowSharedMemory(reinterpret_cast<const void*>(v.kernel), v.dynamic_bytes);
  int ctas = 0;
  PROBE_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&ctas, v.kernel, 32 * kWarps,
                                                            static_cast<size_t>(v.dynamic_bytes)));
  ctas = std::min(ctas, kWarpsOnSm / kWarps) * SmCount();
  v.teams = kCluster ? ctas / kChunks : ctas;
  return v;
}

template <int M>
std::vector<Variant> Variants() {
  return {Make<M, 1, false>(), Make<M, 2, false>(), Make<M, 2, true>(), Make<M, 4, false>(),
          Make<M, 4, true>()};
}

void Launch(const Variant& v, const Product& p, cudaStream_t stream) {
  const int teams = std::min(v.teams, p.n / kRows);
  const int ctas = v.cluster ? v.chunks : 1, warps = v.cluster ? 1 : v.chunks;  // of a team
  LaunchKernel({teams * ctas, 32 * warps, v.dynamic_bytes, ctas}, stream, v.kernel, p);
}

void MeasureCase(Report& report, const WeightShape& weight, const GemmCase& shape,
                 const std::vector<Variant>& variants, const GemmBuffers& buffers, double plain,
                 cudaStream_t stream) {
  const auto product = [&](int copy) {
    return Product{static_cast<const __nv_bfloat16*>(buffers.Weights(copy)),
                   buffers.x.As<__nv_bfloat16>(), buffers.y.As<__nv_bfloat16>(), shape.n, shape.k};
  };
  const size_t count = static_cast<size_t>(shape.m) * static_cast<size_t>(shape.n);
  std::string cells, wrong;
  double best = 1e30;
  std::vector<uint16_t> in_cta, results(count);
  for (const Variant& v : variants) {
    PROBE_CHECK(cudaMemsetAsync(buffers.y.As(), 0xFF, buffers.y.bytes(), stream));
    Launch(v, product(0), stream);
    const Product p = product(0);
    const double error = ErrorOverBound({p.w, p.x, p.y, p.n, p.k, p.k, shape.m}, stream);
    PROBE_CHECK(cudaMemcpy(results.data(), p.y, 2 * count, cudaMemcpyDeviceToHost));
    const std::string name =
        std::to_string(v.chunks) + (v.cluster ? " chunks in a cluster" : " chunks in a CTA");
    if (error > 1) wrong += name + ": error " + std::to_string(error) + " of the bound; ";
    if (v.cluster && results != in_cta) wrong += name + ": other bits than in a CTA; ";
    if (!v.cluster) in_cta = results;
    const double us = TimeGraph(stream, buffers.copies, shape,
                                [&](int copy) { Launch(v, product(copy), stream); });
    best = std::min(best, us);
    char text[32];
    std::snprintf(text, sizeof(text), " | %.2f", us);
    cells += text;
  }
  const double rate = 2.0 * shape.n * shape.k / best / 1e6;
  report.Row("%s %s | %d%s | %.2f | %.0f %% | %s", weight.model, weight.name, shape.m,
             cells.c_str(), rate, 100 * rate / plain, wrong.empty() ? "right" : wrong.c_str());
}

}  // namespace

void RunKChunks(Report& report) {
  cudaStream_t stream = nullptr;
  PROBE_CHECK(cudaStreamCreate(&stream));
  double plain = 0;
  {
    const DeviceMemory weights(size_t{4} << 30), out(4);
    FillRandomBits(weights.As(), weights.bytes(), 1, stream);
    const Timing time = TimePlainRead(weights.As(), weights.bytes(), out.As<uint32_t>(), stream);
    plain = static_cast<double>(weights.bytes()) / time.median_us / 1e6;
  }
  report.Text("plain read of 4 GiB: %.2f TB/s", plain);
  const std::pair<int, std::vector<Variant>> by_tokens[] = {
      {1, Variants<1>()}, {8, Variants<8>()}, {16, Variants<16>()}};
  for (const auto& [m, variants] : by_tokens) {
    for (const Variant& v : variants) {
      report.Text("M = %d, %d chunks %s: %d tiles at a time", m, v.chunks,
                  v.cluster ? "in a cluster" : "in a CTA", v.teams);
    }
  }
  report.Table(
      "us of one product in a graph over weights that are not in the L2, by where 2 or 4 chunks of "
      "K meet",
      "weights | M | 1 chunk | 2, CTA | 2, cluster | 4, CTA | 4, cluster | TB/s of the best | of "
      "the plain read | results");
  for (const char* model : {"Llama-3.1-8B", "Qwen3-0.6B", "Qwen3-14B"}) {
    for (const WeightShape& weight : DenseShapes()) {
      if (std::string(weight.model) != model) continue;
      GemmCase shape{static_cast<int>(weight.n), 16, static_cast<int>(weight.k)};
      const GemmBuffers buffers(shape, stream);
      for (const auto& [m, variants] : by_tokens) {
        if (!report.HasSeconds(2)) return;
        shape.m = m;
        MeasureCase(report, weight, shape, variants, buffers, plain, stream);
      }
    }
  }
  PROBE_CHECK(cudaStreamDestroy(stream));
}

}  // namespace probe
