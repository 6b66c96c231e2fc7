// Do weight-reading kernels in a chain reach the memory's bandwidth, if each requests its weights
// before the kernel ahead has ended?
//
// y[M, N] = x[M, K] W[N, K]^T for qkv, o, gate_up and down of every layer, each with weights of its
// own, in one CUDA graph. A CTA owns groups of 8 rows; a warp requests stages of 8 rows x 512
// columns by bulk copies, eight warps multiply (64 columns each). All variants sum in the same
// order and must agree bit for bit.
//
// Decides: whether kernels use dependent launch, when they request weights and release the next
// kernel, and how much shared memory and how many registers a CTA may take.
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bench/gpu_probe/tma_ptx.h"

namespace probe {
namespace {

constexpr int kWarps = 8, kThreads = 32 * (kWarps + 1);
constexpr int kColumns = 512;                 // of a stage
constexpr int kRowBytes = 2 * kColumns + 64;  // padded: two rows fill all banks
constexpr int kStageBytes = 8 * kRowBytes;
constexpr int kPass = 8;  // groups of rows that share loads of x

// kPlain: stream order. kWaitFirst: dependent launch, everything after the wait. kEarly: weights
// before the wait, the next kernel released at once. kLate: released after the last request.
enum Mode { kPlain, kWaitFirst, kEarly, kLate };

struct Product {
  const __nv_bfloat16 *w, *x;
  __nv_bfloat16* y;
  int64_t n;
  int k, ldx, m;
};

template <int Ctas>
__global__ void __launch_bounds__(kThreads, Ctas) Multiply(const Product p, int stages, Mode mode) {
  extern __shared__ __align__(128) uint8_t ring[];
  __shared__ uint64_t full[32], empty[32];
  __shared__ float sums[2][kWarps][128];
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; ++i) {
      InitBarrier(&full[i], 1);
      InitBarrier(&empty[i], kWarps);
    }
    FenceBarrierInit();
  }
  __syncthreads();
  if (mode == kWaitFirst || mode == kEarly) LaunchNextKernel();
  if (mode == kWaitFirst) WaitForKernelAhead();
  const int64_t groups = p.n / 8;
  const int64_t begin = groups * blockIdx.x / gridDim.x;
  const int64_t end = groups * (blockIdx.x + 1) / gridDim.x;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, chunks = p.k / kColumns;
  RingPosition at;
  if (warp == kWarps) {
    for (int64_t first = begin; first < end; first += kPass) {
      const int count = static_cast<int>(min(int64_t{kPass}, end - first));
      for (int c = 0; c < chunks; ++c) {
        for (int g = 0; g < count; ++g, at.Next(stages)) {
          WaitParity(&empty[at.slot], at.parity ^ 1);
          if (lane == 0) ArriveExpect(&full[at.slot], 8 * 2 * kColumns);
          __syncwarp();
          if (lane < 8) {
            BulkCopy(ring + at.slot * kStageBytes + lane * kRowBytes,
                     p.w + ((first + g) * 8 + lane) * p.k + c * kColumns, 2 * kColumns,
                     &full[at.slot]);
          }
        }
      }
    }
    if (mode == kLate) LaunchNextKernel();
    return;
  }
  if (mode != kPlain) WaitForKernelAhead();
  const int row = lane / 4, q = lane % 4;
  const auto load = [&](int token, int column) {
    const auto* from = p.x + int64_t{token} * p.ldx + column;
    return token < p.m ? __ldcg(reinterpret_cast<const uint4*>(from)) : uint4{};
  };
  for (int64_t first = begin; first < end; first += kPass) {
    const int count = static_cast<int>(min(int64_t{kPass}, end - first));
    float sum[kPass][4] = {};
    uint4 next[4];
    const auto fetch = [&](int c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        next[i] = load(row + i % 2 * 8, c * kColumns + warp * 64 + i / 2 * 32 + q * 8);
      }
    };
    fetch(0);
    for (int c = 0; c < chunks; ++c) {
      const uint4 x[4] = {next[0], next[1], next[2], next[3]};
      if (c + 1 < chunks) fetch(c + 1);
#pragma unroll
      for (int g = 0; g < kPass; ++g) {
        if (g >= count) break;
        WaitParity(&full[at.slot], at.parity);
        const uint8_t* from = ring + at.slot * kStageBytes + row * kRowBytes + warp * 128 + q * 16;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint4 w = *reinterpret_cast<const uint4*>(from + half * 64);
          const uint4 low = x[2 * half], high = x[2 * half + 1];
          MultiplyAdd(sum[g], low.x, high.x, low.y, high.y, w.x, w.y);
          MultiplyAdd(sum[g], low.z, high.z, low.w, high.w, w.z, w.w);
        }
        __syncwarp();
        if (lane == 0) Arrive(&empty[at.slot]);
        at.Next(stages);
      }
    }
#pragma unroll
    for (int g = 0; g < kPass; ++g) {
      if (g >= count) break;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[g % 2][warp][(row + i / 2 * 8) * 8 + q * 2 + i % 2] = sum[g][i];
      }
      asm volatile("bar.sync 1, 256;" ::: "memory");
      const int token = threadIdx.x / 8;
      if (token < p.m) {
        float total = 0;
        for (int i = 0; i < kWarps; ++i) total += sums[g % 2][i][threadIdx.x];
        p.y[token * p.n + (first + g) * 8 + threadIdx.x % 8] = __float2bfloat16(total);
      }
    }
    asm volatile("bar.sync 1, 256;" ::: "memory");
  }
}

struct Variant {
  Mode mode;
  int kilobytes, ctas, registers_for;
};

void Launch(const Product& p, const Variant& v, cudaStream_t stream) {
  const auto kernel = v.registers_for == 1   ? Multiply<1>
                      : v.registers_for == 2 ? Multiply<2>
                                             : Multiply<3>;
  const int stages = (v.kilobytes * 1024 - 10 * 1024) / kStageBytes;
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(std::min<int64_t>(SmCount() * v.ctas, p.n / 8));
  config.blockDim = kThreads;
  config.dynamicSmemBytes = stages * kStageBytes;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = v.mode == kPlain ? 0 : 1;
  PROBE_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   stages * kStageBytes));
  PROBE_CHECK(cudaLaunchKernelEx(&config, kernel, p, stages, v.mode));
}

void RunModel(Report& report, const char* model, int layers) {
  std::vector<WeightShape> shapes;
  int64_t elements = 0;
  for (const WeightShape& s : DenseShapes()) {
    if (std::string(s.model) != model) continue;
    shapes.push_back(s);
    elements += s.n * s.k;
  }
  elements *= layers;
  cudaStream_t stream = nullptr;
  PROBE_CHECK(cudaStreamCreate(&stream));
  const DeviceMemory weights(2 * elements), out(4), single(2 * 16 * (elements / 1024));
  std::vector<DeviceMemory> y;
  for (int i = 0; i < 4; ++i) y.emplace_back(2 * 16 * 40'000);
  auto* w = weights.As<__nv_bfloat16>();
  for (int layer = 0; layer < layers; ++layer) {
    for (const WeightShape& s : shapes) {
      FillRandomBf16(w, s.n * s.k, 1 / std::sqrt(float(s.k)), w - weights.As<__nv_bfloat16>(),
                     stream);
      w += s.n * s.k;
    }
  }
  const double bytes = 2.0 * double(elements);
  const double plain =
      bytes / TimePlainRead(weights.As(), weights.bytes(), out.As<uint32_t>(), stream).median_us /
      1e6;
  report.Table(std::string(model) + ": chain of " + std::to_string(4 * layers) + " products",
               "M | mode | KB per CTA | CTAs per SM | registers for CTAs | us per layer | TB/s | "
               "of plain read | one kernel of the bytes, TB/s | output");
  const char* names[] = {"stream order", "wait first", "weights first, release early",
                         "weights first, release late"};
  for (const int m : {1, 8, 16}) {
    std::vector<uint16_t> expected;
    for (const int shape : {0, 1, 2, 3, 4}) {
      const int kb[] = {100, 48, 200, 100, 48}, ctas[] = {1, 1, 1, 2, 2}, regs[] = {2, 2, 1, 2, 3};
      for (const Mode mode : {kPlain, kWaitFirst, kEarly, kLate}) {
        if (report.SecondsLeft() < 5) return;
        const Variant v{mode, kb[shape], ctas[shape], regs[shape]};
        PROBE_CHECK(cudaMemset(y[3].As(), 0x3c, y[3].bytes()));
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t exec = nullptr;
        PROBE_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        const auto* at = weights.As<__nv_bfloat16>();
        for (int i = 0; i < 4 * layers; ++i) {
          const WeightShape &s = shapes[i % 4], &ahead = shapes[(i + 3) % 4];
          Launch({at, y[(i + 3) % 4].As<__nv_bfloat16>(), y[i % 4].As<__nv_bfloat16>(), s.n,
                  int(s.k), int(ahead.n), m},
                 v, stream);
          at += s.n * s.k;
        }
        PROBE_CHECK(cudaStreamEndCapture(stream, &graph));
        PROBE_CHECK(cudaGraphInstantiate(&exec, graph, 0));
        const auto reset = [&] {
          PROBE_CHECK(cudaMemsetAsync(y[3].As(), 0x3c, y[3].bytes(), stream));
        };
        const Timing t = Time(
            stream, [&] { PROBE_CHECK(cudaGraphLaunch(exec, stream)); }, 5, 1, reset);
        std::vector<uint16_t> result(m * shapes[3].n);
        PROBE_CHECK(
            cudaMemcpy(result.data(), y[3].As(), 2 * result.size(), cudaMemcpyDeviceToHost));
        if (expected.empty()) expected = result;
        const Timing one = Time(
            stream,
            [&] {
              Launch({weights.As<__nv_bfloat16>(), y[0].As<__nv_bfloat16>(),
                      single.As<__nv_bfloat16>(), elements / 1024, 1024, 1024, m},
                     {kPlain, v.kilobytes, v.ctas, v.registers_for}, stream);
            },
            3);
        report.Row("%d | %s | %d | %d | %d | %.2f | %.2f | %.1f %% | %.2f | %s", m, names[mode],
                   v.kilobytes, v.ctas, v.registers_for, t.median_us / layers,
                   bytes / t.median_us / 1e6, 100 * bytes / t.median_us / 1e6 / plain,
                   bytes / one.median_us / 1e6, result == expected ? "equal" : "DIFFERS");
        PROBE_CHECK(cudaGraphExecDestroy(exec));
        PROBE_CHECK(cudaGraphDestroy(graph));
      }
    }
  }
}

}  // namespace

void RunDependentLaunch(Report& report) {
  RunModel(report, "Llama-3.1-8B", 32);
  RunModel(report, "Qwen3-0.6B", 28);
  RunModel(report, "Qwen3-14B", 40);
}

}  // namespace probe
