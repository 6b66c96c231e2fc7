// Small kernels of TMA, mbarrier and wgmma, correct or with a planted fault, for compute-sanitizer
// and ncu (run_tools.sh). PROBE_TOOL=good|oob|race|nowait chooses one.
#include <cuda_bf16.h>

#include <bit>
#include <cmath>
#include <cstdlib>

#include "bench/gpu_probe/gemm_host.h"
#include "bench/gpu_probe/probe.h"
#include "bench/gpu_probe/tensor_ptx.h"

namespace probe {
namespace {

enum class Fault { kNone, kOutOfBounds, kRace, kNoWait };

constexpr int kSide = 64;  // rows of weights and tokens of a CTA's tile
constexpr int kStageK = 64;
constexpr int kStages = 2;
constexpr int kTileBytes = kSide * kStageK * 2;
constexpr int kSharedBytes = 1024 + kStages * 2 * kTileBytes + kSide * kSide * 4 + 64;

// y[n, m] in f32. A warp loads two stages in turn, a warpgroup multiplies; the results go through
// shared memory, so that one thread reads what another has written.
template <Fault kFault>
__global__ void __launch_bounds__(160)
    ToolKernel(const __grid_constant__ CUtensorMap weights,
               const __grid_constant__ CUtensorMap tokens, float* y, int n, int m, int k) {
  extern __shared__ uint8_t memory[];
  uint8_t* stages = memory + ((1024 - (SharedAddress(memory) & 1023)) & 1023);
  float* results = reinterpret_cast<float*>(stages + kStages * 2 * kTileBytes);
  uint64_t* full = reinterpret_cast<uint64_t*>(results + kSide * kSide);
  uint64_t* empty = full + kStages;
  const int n0 = blockIdx.x * kSide, m0 = blockIdx.y * kSide;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      InitBarrier(&full[i], 1);
      InitBarrier(&empty[i], 4);
    }
    FenceBarrierInit();
  }
  __syncthreads();
  const int steps = k / kStageK;
  if (threadIdx.x == 128) {
    for (int step = 0; step < steps; ++step) {
      uint8_t* stage = stages + step % kStages * 2 * kTileBytes;
      uint64_t* barrier = &full[step % kStages];
      WaitParity(&empty[step % kStages], step / kStages % 2 ^ 1);
      ArriveExpect(barrier, 2 * kTileBytes);
      TensorCopy2(stage, &weights, step * kStageK, n0, barrier);
      TensorCopy2(stage + kTileBytes, &tokens, step * kStageK, m0, barrier);
    }
    // A CTA must not end while a copy is under way, not even the one that kNoWait does not wait
    // for.
    WaitParity(&full[(steps - 1) % kStages], (steps - 1) / kStages % 2);
  }
  if (threadIdx.x < 128) {
    float d[kSide / 2] = {};
    for (int step = 0; step < steps; ++step) {
      if (kFault != Fault::kNoWait || step + 1 < steps) {
        WaitParity(&full[step % kStages], step / kStages % 2);
      }
      const uint32_t stage = SharedAddress(stages + step % kStages * 2 * kTileBytes);
      PinRegisters(d);
      WgmmaFence();
#pragma unroll
      for (int i = 0; i < kStageK / 16; ++i) {
        Wgmma<kSide>::Run<Type::kBf16>(d, Swizzled128Descriptor(stage + 32 * i),
                                       Swizzled128Descriptor(stage + kTileBytes + 32 * i), 1);
      }
      WgmmaCommit();
      WgmmaWait<0>();
      PinRegisters(d);
      if (threadIdx.x % 32 == 0) Arrive(&empty[step % kStages]);
    }
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < kSide / 2; ++i) {
      results[(row + i % 4 / 2 * 8) * kSide + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2] = d[i];
    }
  }
  if (kFault != Fault::kRace) __syncthreads();
  for (int i = threadIdx.x; i < kSide * kSide; i += blockDim.x) {
    y[size_t(n0 + i / kSide) * m + m0 + i % kSide] = results[i];
  }
  if (kFault == Fault::kOutOfBounds && threadIdx.x == 7) y[size_t{1} * n * m + 3] = 1;
}

using Kernel = void (*)(CUtensorMap, CUtensorMap, float*, int, int, int);

struct Tool {
  const char* name;
  Kernel kernel;
};

constexpr Tool kTools[] = {
    {"good", ToolKernel<Fault::kNone>},
    {"oob", ToolKernel<Fault::kOutOfBounds>},
    {"race", ToolKernel<Fault::kRace>},
    {"nowait", ToolKernel<Fault::kNoWait>},
};

template <typename T>
std::vector<T> Download(const DeviceMemory& memory) {
  std::vector<T> values(memory.bytes() / sizeof(T));
  PROBE_CHECK(cudaMemcpy(values.data(), memory.As(), memory.bytes(), cudaMemcpyDeviceToHost));
  return values;
}

float Widen(uint16_t bf16) { return std::bit_cast<float>(uint32_t{bf16} << 16); }

// The largest error of y[n, m] over the deviation of its values.
double WorstError(const DeviceMemory& w, const DeviceMemory& x, const DeviceMemory& y, int n, int m,
                  int k) {
  const auto weights = Download<uint16_t>(w), tokens = Download<uint16_t>(x);
  const auto results = Download<float>(y);
  double worst = 0;
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m; ++j) {
      double sum = 0;
      for (int l = 0; l < k; ++l) {
        sum += static_cast<double>(Widen(weights[size_t(i) * k + l])) *
               Widen(tokens[size_t(j) * k + l]);
      }
      const double error = std::fabs(sum - results[size_t(i) * m + j]);
      worst = error <= worst ? worst : std::isnan(error) ? 1e30 : error;
    }
  }
  return worst / std::sqrt(static_cast<double>(k));
}

}  // namespace

void RunTools(Report& report) {
  const char* wanted = std::getenv("PROBE_TOOL");
  const std::string name = wanted != nullptr ? wanted : "good";
  constexpr int kN = 256, kM = 128, kK = 512;
  for (const Tool& tool : kTools) {
    if (name != tool.name) continue;
    const DeviceMemory w(kN * kK * 2), x(kM * kK * 2), y(kN * kM * 4);
    FillRandomBf16(w.As(), kN * kK, 1, 1, nullptr);
    FillRandomBf16(x.As(), kM * kK, 1, 2, nullptr);
    AllowSharedMemory(reinterpret_cast<const void*>(tool.kernel), kSharedBytes);
    tool.kernel<<<dim3(kN / kSide, kM / kSide), 160, kSharedBytes>>>(
        TileMap(w.As(), kN, kK, kSide), TileMap(x.As(), kM, kK, kSide), y.As<float>(), kN, kM, kK);
    PROBE_CHECK(cudaGetLastError());
    PROBE_CHECK(cudaDeviceSynchronize());
    report.Text("ran \"%s\": worst error %.2g of the results' deviation", tool.name,
                WorstError(w, x, y, kN, kM, kK));
    return;
  }
  report.Text("PROBE_TOOL is \"%s\"; it must be good, oob, race or nowait", name.c_str());
}

}  // namespace probe
