// Do weight-reading kernels in a chain reach the memory's bandwidth, if each requests its weights
// before the kernel ahead has ended?
//
// y[M, N] = x[M, K] W[N, K]^T for qkv, o, gate_up and down of every layer, each with weights of its
// own, in one CUDA graph. A CTA owns groups of 8 rows; a warp requests stages of 8 rows x 512
// columns by bulk copies, eight warps multiply (64 columns each). The first layer's products are
// checked with a simple kernel. All variants sum in the same order, so that the results of their
// chains must agree bit for bit.
//
// Decides: whether kernels use dependent launch, when they request weights and release the next
// kernel, and how much shared memory and how many registers a CTA may take.
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bench/gpu_probe/launch.h"
#include "bench/gpu_probe/probe.h"
#include "bench/gpu_probe/reference.h"
#include "bench/gpu_probe/tensor_ptx.h"

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

using Product = ProductOperands;

// The ring of stages: barriers and memory.
struct Stages {
  uint8_t* memory;
  uint64_t *full, *empty;
  int count;
};

// One warp's work: requests the weights of the groups of rows from `begin` to `end`.
__device__ void RequestWeights(const Product& p, const Stages& ring, int64_t begin, int64_t end) {
  const int lane = threadIdx.x % 32, chunks = p.k / kColumns;
  RingPosition at;
  for (int64_t first = begin; first < end; first += kPass) {
    const int count = static_cast<int>(min(int64_t{kPass}, end - first));
    for (int c = 0; c < chunks; ++c) {
      for (int g = 0; g < count; ++g, at.Next(ring.count)) {
        WaitParity(&ring.empty[at.slot], at.parity ^ 1);
        if (lane == 0) ArriveExpect(&ring.full[at.slot], 8 * 2 * kColumns);
        __syncwarp();
        if (lane < 8) {
          BulkCopy(ring.memory + at.slot * kStageBytes + lane * kRowBytes,
                   p.w + ((first + g) * 8 + lane) * p.k + c * kColumns, 2 * kColumns,
                   &ring.full[at.slot]);
        }
      }
    }
  }
}

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
  if (warp == kWarps) {
    RequestWeights(p, {ring, full, empty, stages}, begin, end);
    if (mode == kLate) LaunchNextKernel();
    return;
  }
  if (mode != kPlain) WaitForKernelAhead();
  RingPosition at;
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
          Mma<Type::kBf16>(sum[g], {low.x, high.x, low.y, high.y}, {w.x, w.y});
          Mma<Type::kBf16>(sum[g], {low.z, high.z, low.w, high.w}, {w.z, w.w});
        }
        ReleaseStage(&empty[at.slot]);
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

using Kernel = void (*)(Product, int, Mode);

Kernel KernelOf(const Variant& v) {
  return v.registers_for == 1 ? Multiply<1> : v.registers_for == 2 ? Multiply<2> : Multiply<3>;
}

void Launch(const Product& p, const Variant& v, cudaStream_t stream) {
  const auto kernel = KernelOf(v);
  const int stages = (v.kilobytes * 1024 - 10 * 1024) / kStageBytes;
  AllowSharedMemory(reinterpret_cast<const void*>(kernel), stages * kStageBytes);
  const auto ctas = static_cast<int>(std::min<int64_t>(SmCount() * v.ctas, p.n / 8));
  LaunchKernel({.grid = ctas,
                .block = kThreads,
                .shared_bytes = stages * kStageBytes,
                .dependent = v.mode != kPlain},
               stream, kernel, p, stages, v.mode);
}

// A model's weights and the chain of products over all of its layers.
class Model {
 public:
  Model(const char* name, int layers) : name_(name), layers_(layers) {
    for (const WeightShape& s : DenseShapes()) {
      if (std::string(s.model) != name) continue;
      shapes_.push_back(s);
      elements_ += s.n * s.k * layers;
    }
    PROBE_CHECK(cudaStreamCreate(&stream_));
    weights_ = DeviceMemory(2 * elements_);
    single_ = DeviceMemory(2 * 16 * (elements_ / kSingleK));
    for (DeviceMemory& y : y_) y = DeviceMemory(2 * 16 * 40'000);
    auto* w = Weights();
    for (int i = 0; i < 4 * layers; ++i) {
      const WeightShape& s = shapes_[i % 4];
      FillRandomBf16(w, s.n * s.k, 1 / std::sqrt(float(s.k)), w - Weights(), stream_);
      w += s.n * s.k;
    }
  }
  ~Model() { (void)cudaStreamDestroy(stream_); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void Measure(Report& report) {
    const DeviceMemory out(4);
    plain_ = Bytes() /
             TimePlainRead(weights_.As(), weights_.bytes(), out.As<uint32_t>(), stream_).median_us /
             1e6;
    report.Table(
        name_ + ": chain of " + std::to_string(4 * layers_) + " products",
        "M | mode | KB per CTA | CTAs per SM | registers (bytes spilled) | us per layer | TB/s | "
        "of plain read | one kernel of the bytes, TB/s | each product | chain");
    for (const int m : {1, 8, 16}) {
      expected_.clear();
      for (const int shape : {0, 1, 2, 3, 4}) {
        const int kb[] = {100, 48, 200, 100, 48}, ctas[] = {1, 1, 1, 2, 2},
                  regs[] = {2, 2, 1, 2, 3};
        for (const Mode mode : {kPlain, kWaitFirst, kEarly, kLate}) {
          if (!report.HasSeconds(5)) return;
          Row(report, {mode, kb[shape], ctas[shape], regs[shape]}, m);
        }
      }
    }
  }

 private:
  static constexpr int kSingleK = 1024;

  __nv_bfloat16* Weights() const { return weights_.As<__nv_bfloat16>(); }
  __nv_bfloat16* Y(int i) const { return y_[i % 4].As<__nv_bfloat16>(); }
  double Bytes() const { return 2.0 * static_cast<double>(elements_); }

  // The first layer's products, one by one, against a simple kernel's.
  std::string CheckProducts(const Variant& v, int m) {
    const __nv_bfloat16* w = Weights();
    double worst = 0;
    for (const WeightShape& s : shapes_) {
      const int k = static_cast<int>(s.k);
      FillRandomBf16(Y(0), size_t(m) * k, 1, 5, stream_);
      PROBE_CHECK(cudaMemsetAsync(Y(1), 0xFF, y_[1].bytes(), stream_));
      const Product p{w, Y(0), Y(1), s.n, k, k, m};
      Launch(p, v, stream_);
      worst = std::max(worst, ErrorOverBound(p, stream_));
      w += s.n * s.k;
    }
    return worst <= 1 ? "right" : "WRONG: " + std::to_string(worst) + " of the bound";
  }

  Timing TimeChain(const Variant& v, int m) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    PROBE_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    const __nv_bfloat16* w = Weights();
    for (int i = 0; i < 4 * layers_; ++i) {
      const WeightShape &s = shapes_[i % 4], &ahead = shapes_[(i + 3) % 4];
      Launch({w, Y(i + 3), Y(i), s.n, int(s.k), int(ahead.n), m}, v, stream_);
      w += s.n * s.k;
    }
    PROBE_CHECK(cudaStreamEndCapture(stream_, &graph));
    PROBE_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    const Timing time = Time(
        stream_, [&] { PROBE_CHECK(cudaGraphLaunch(exec, stream_)); }, 5, 1,
        [&] { PROBE_CHECK(cudaMemsetAsync(Y(3), 0x3c, y_[3].bytes(), stream_)); });
    PROBE_CHECK(cudaGraphExecDestroy(exec));
    PROBE_CHECK(cudaGraphDestroy(graph));
    return time;
  }

  void Row(Report& report, const Variant& v, int m) {
    const char* names[] = {"stream order", "wait first", "weights first, release early",
                           "weights first, release late"};
    const std::string products = CheckProducts(v, m);
    const Timing chain = TimeChain(v, m);
    std::vector<uint16_t> result(m * shapes_[3].n);
    PROBE_CHECK(cudaMemcpy(result.data(), Y(3), 2 * result.size(), cudaMemcpyDeviceToHost));
    if (expected_.empty()) expected_ = result;
    const Variant plain{kPlain, v.kilobytes, v.ctas, v.registers_for};
    const Product single{
        Weights(), Y(0), single_.As<__nv_bfloat16>(), elements_ / kSingleK, kSingleK, kSingleK, m};
    const Timing one = Time(
        stream_, [&] { Launch(single, plain, stream_); }, 3);
    cudaFuncAttributes attributes{};
    PROBE_CHECK(cudaFuncGetAttributes(&attributes, KernelOf(v)));
    const double rate = Bytes() / chain.median_us / 1e6;
    report.Row("%d | %s | %d | %d | %d (%zu) | %.2f | %.2f | %.1f %% | %.2f | %s | %s", m,
               names[v.mode], v.kilobytes, v.ctas, attributes.numRegs, attributes.localSizeBytes,
               chain.median_us / layers_, rate, 100 * rate / plain_, Bytes() / one.median_us / 1e6,
               products.c_str(), result == expected_ ? "equal" : "DIFFERS from the first row's");
  }

  std::string name_;
  int layers_;
  std::vector<WeightShape> shapes_;
  int64_t elements_ = 0;
  cudaStream_t stream_ = nullptr;
  DeviceMemory weights_, single_, y_[4];  // y[i % 4] is product i's, and the next one's x
  double plain_ = 0;                      // TB/s
  std::vector<uint16_t> expected_;
};

}  // namespace

void RunDependentLaunch(Report& report) {
  Model("Llama-3.1-8B", 32).Measure(report);
  Model("Qwen3-0.6B", 28).Measure(report);
  Model("Qwen3-14B", 40).Measure(report);
}

}  // namespace probe
