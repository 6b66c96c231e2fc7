// Weights as wgmma's 64-row operand, tokens as its N: what share of the GPU's bounds does a plain
// kernel reach, beside cuBLASLt's best algorithm?
#include <algorithm>
#include <cmath>
#include <memory>

#include "bench/gpu_probe/gemm_host.h"
#include "bench/gpu_probe/launch.h"
#include "bench/gpu_probe/probe.h"
#include "bench/gpu_probe/wgmma_gemm.h"

namespace probe {
namespace {

struct Variant {
  const char* name;
  int rows, tokens, ctas, split;  // weight rows and tokens of a tile, CTAs on an SM, in a cluster
  void (*kernel)(CUtensorMap, CUtensorMap, __nv_bfloat16*, int, int, int);
  int threads, shared_bytes;
};

template <int kRows, int kTokens, int kCtas, int kSplit = 1>
Variant Make(const char* name) {
  using Shape = GemmShape<kRows, kTokens, kCtas>;
  static_assert(Shape::kStages >= 2);
  Variant variant{name,
                  kRows,
                  kTokens,
                  kCtas,
                  kSplit,
                  WeightGemm<kRows, kTokens, kCtas, kSplit>,
                  Shape::kThreads,
                  Shape::kSharedBytes};
  AllowSharedMemory(reinterpret_cast<const void*>(variant.kernel), Shape::kSharedBytes);
  return variant;
}

template <int kTokens>
std::vector<Variant> SmallVariants() {
  return {Make<64, kTokens, 2>("64 rows"), Make<128, kTokens, 1>("128 rows"),
          Make<64, kTokens, 2, 2>("2 parts of k"), Make<64, kTokens, 2, 4>("4 parts"),
          Make<64, kTokens, 2, 8>("8 parts")};
}

// The variants that suit M tokens: the tile's tokens are M, up to a limit.
std::vector<Variant> VariantsFor(int m) {
  switch (std::min(m, 256)) {
    case 8:
      return SmallVariants<8>();
    case 16:
      return SmallVariants<16>();
    case 32:
      return SmallVariants<32>();
    case 64:
      return SmallVariants<64>();
    case 128:
      return {Make<64, 128, 2>("64 x 128, 2 CTAs"), Make<128, 128, 1>("128 x 128"),
              Make<128, 64, 2>("128 x 64, 2 CTAs")};
    default:
      return {Make<64, 128, 2>("64 x 128, 2 CTAs"), Make<128, 128, 2>("128 x 128, 2 CTAs"),
              Make<128, 256, 1>("128 x 256")};
  }
}

void Launch(const Variant& variant, const CUtensorMap& weights, const CUtensorMap& tokens,
            __nv_bfloat16* y, const GemmCase& shape, cudaStream_t stream) {
  const int tiles = (shape.m + variant.tokens - 1) / variant.tokens * (shape.n / variant.rows);
  const int grid =
      variant.split > 1 ? tiles * variant.split : std::min(tiles, variant.ctas * SmCount());
  LaunchKernel({grid, variant.threads, variant.shared_bytes, variant.split}, stream, variant.kernel,
               weights, tokens, y, shape.n, shape.m, shape.k);
}

__global__ void MaxDifference(const __nv_bfloat16* a, const __nv_bfloat16* b, size_t count,
                              unsigned* out) {
  float largest = 0;
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const float difference = fabsf(__bfloat162float(a[i]) - __bfloat162float(b[i]));
    largest = difference <= 1e30f ? fmaxf(largest, difference) : 1e30f;
  }
  atomicMax(out, __float_as_uint(largest));
}

// The largest difference of `y` from cuBLASLt's result, over the deviation of the results.
double RelativeError(const GemmBuffers& buffers, const GemmCase& shape) {
  DeviceMemory out(4);
  PROBE_CHECK(cudaMemset(out.As(), 0, 4));
  MaxDifference<<<256, 256>>>(buffers.y.As<__nv_bfloat16>(), buffers.expected.As<__nv_bfloat16>(),
                              static_cast<size_t>(shape.m) * shape.n, out.As<unsigned>());
  float largest = 0;
  PROBE_CHECK(cudaMemcpy(&largest, out.As(), 4, cudaMemcpyDeviceToHost));
  return largest / (kTokenScale * kWeightScale * std::sqrt(static_cast<double>(shape.k)));
}

void MeasureCase(Report& report, const WeightShape& weight, const GemmCase& shape,
                 const GemmBuffers& buffers, cudaStream_t stream) {
  const double n = shape.n, m = shape.m, k = shape.k;
  const double bound_us =
      1e6 * std::max(2 * (n * k + m * k + n * m) / 4.28e12, 2 * n * m * k / 790e12);
  const double cublas = TimeCublas(shape, buffers, /*split=*/true, stream);
  const double unsplit = TimeCublas(shape, buffers, /*split=*/false, stream);
  std::string cells;
  double best = 1e30;
  for (const Variant& variant : VariantsFor(shape.m)) {
    if (shape.n % variant.rows != 0 || shape.k % (kGemmK * variant.split) != 0) continue;
    const CUtensorMap tokens = TileMap(buffers.x.As(), shape.m, shape.k, variant.tokens);
    std::vector<CUtensorMap> weights;
    for (int i = 0; i < buffers.copies; ++i) {
      weights.push_back(TileMap(buffers.Weights(i), shape.n, shape.k, variant.rows));
    }
    auto* y = buffers.y.As<__nv_bfloat16>();
    PROBE_CHECK(cudaMemsetAsync(y, 0xFF, static_cast<size_t>(shape.m) * shape.n * 2, stream));
    Launch(variant, weights[0], tokens, y, shape, stream);
    PROBE_CHECK(cudaStreamSynchronize(stream));
    const double error = RelativeError(buffers, shape);
    const double us = TimeGraph(stream, buffers.copies, shape, [&](int copy) {
      Launch(variant, weights[static_cast<size_t>(copy)], tokens, y, shape, stream);
    });
    best = std::min(best, us);
    char text[128];
    std::snprintf(text, sizeof(text), "%s%s: %.1f%s", cells.empty() ? "" : "; ", variant.name, us,
                  error < 0.05 ? "" : (" WRONG by " + std::to_string(error)).c_str());
    cells += text;
  }
  report.Row("%s %s | %d | %.1f | %.1f (%.0f%%) | %.1f (%.0f%%) | %.1f (%.0f%%) | %s", weight.model,
             weight.name, shape.m, bound_us, best, 100 * bound_us / best, cublas,
             100 * bound_us / cublas, unsplit, 100 * bound_us / unsplit, cells.c_str());
}

}  // namespace

void RunWgmma(Report& report) {
  cudaStream_t stream = nullptr;
  PROBE_CHECK(cudaStreamCreate(&stream));
  report.Table(
      "Y = X W^T in bf16: us and share of max(bytes / 4.28 TB/s, FLOPs / 790 TFLOP/s), "
      "weights not in the L2",
      "weights | M | bound us | best of ours | cuBLASLt | cuBLASLt without split-K | ours, us");
  for (const char* model : {"Llama-3.1-8B", "Qwen3-14B", "Qwen3-0.6B"}) {
    for (const WeightShape& weight : DenseShapes()) {
      if (std::string(weight.model) != model) continue;
      GemmCase shape{static_cast<int>(weight.n), 2048, static_cast<int>(weight.k)};
      const GemmBuffers buffers(shape, stream);
      for (const int m : {8, 16, 32, 64, 128, 256, 512, 1024, 2048}) {
        if (!report.HasSeconds(2)) return;
        shape.m = m;
        MeasureCase(report, weight, shape, buffers, stream);
      }
    }
  }
  PROBE_CHECK(cudaStreamDestroy(stream));
}

}  // namespace probe
