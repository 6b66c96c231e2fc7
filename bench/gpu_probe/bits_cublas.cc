// Do cuBLASLt's algorithms without split-K give the bits of one chain of mma.sync over k?
#include <algorithm>

#include "bench/gpu_probe/bits.h"

namespace probe {
namespace {

cudaDataType_t CudaType(Type type) {
  switch (type) {
    case Type::kBf16:
      return CUDA_R_16BF;
    case Type::kF16:
      return CUDA_R_16F;
    case Type::kE4m3:
      return CUDA_R_8F_E4M3;
  }
  return CUDA_R_16BF;
}

// Y[m, n] = X[m, k] W[n, k]^T, all rows contiguous; cuBLAS sees column-major Y^T = W^T' X'.
struct Product {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;

  Product(Type type, cudaDataType_t out, int m, int n, int k, bool fast) {
    PROBE_CHECK(cublasLtCreate(&handle));
    PROBE_CHECK(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    PROBE_CHECK(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA,
                                               &transposed, sizeof(transposed)));
    const int8_t fast_accumulation = fast ? 1 : 0;
    PROBE_CHECK(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_FAST_ACCUM,
                                               &fast_accumulation, sizeof(fast_accumulation)));
    const auto rows = static_cast<uint64_t>(k);
    PROBE_CHECK(cublasLtMatrixLayoutCreate(&w, CudaType(type), rows, n, k));
    PROBE_CHECK(cublasLtMatrixLayoutCreate(&x, CudaType(type), rows, m, k));
    PROBE_CHECK(cublasLtMatrixLayoutCreate(&y, out, n, m, n));
  }
  ~Product() {
    (void)cublasLtMatrixLayoutDestroy(w);
    (void)cublasLtMatrixLayoutDestroy(x);
    (void)cublasLtMatrixLayoutDestroy(y);
    (void)cublasLtMatmulDescDestroy(description);
    (void)cublasLtDestroy(handle);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  std::vector<cublasLtMatmulHeuristicResult_t> Algorithms(size_t workspace) const {
    cublasLtMatmulPreference_t preference = nullptr;
    PROBE_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    PROBE_CHECK(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace)));
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE;
    PROBE_CHECK(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof(schemes)));
    std::vector<cublasLtMatmulHeuristicResult_t> results(16);
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, description, w, x, y, y, preference,
                                       static_cast<int>(results.size()), results.data(), &found);
    (void)cublasLtMatmulPreferenceDestroy(preference);
    results.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(found) : 0);
    return results;
  }
};

int Config(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  int value = -1;
  size_t written = 0;
  (void)cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof(value),
                                             &written);
  return value;
}

struct Buffers {
  DeviceMemory x, w, chain, half, wgmma, out, workspace;
};

void CompareShape(Report& report, Type type, bool bf16_out, bool fast, int m, int n, int k,
                  const Buffers& buffers) {
  const Product product(type, bf16_out ? CUDA_R_16BF : CUDA_R_32F, m, n, k, fast);
  const auto algorithms = product.Algorithms(buffers.workspace.bytes());
  const size_t count = static_cast<size_t>(m) * static_cast<size_t>(n);
  const float one = 1, zero = 0;
  if (algorithms.empty()) report.Row("%s | %d | - | no algorithm | - | - | -", Name(type), m);
  for (const auto& found : algorithms) {
    PROBE_CHECK(cudaMemset(buffers.out.As(), 0xFF, buffers.out.bytes()));
    const cublasStatus_t status = cublasLtMatmul(
        product.handle, product.description, &one, buffers.w.As(), product.w, buffers.x.As(),
        product.x, &zero, buffers.out.As(), product.y, buffers.out.As(), product.y, &found.algo,
        buffers.workspace.As(), buffers.workspace.bytes(), nullptr);
    if (status != CUBLAS_STATUS_SUCCESS) continue;
    const auto differs = [&](const DeviceMemory& chain) {
      const Difference difference =
          bf16_out ? CompareBf16(buffers.out.As<uint16_t>(), chain.As<float>(), count)
                   : Compare(buffers.out.As<float>(), chain.As<float>(), count);
      return std::to_string(difference.count) +
             (difference.count == 0 ? "" : " (ulp " + std::to_string(difference.max_ulp) + ")");
    };
    const cublasLtMatmulAlgo_t& algorithm = found.algo;
    report.Row(
        "%s | %d | %s%s | id %d tile %d stages %d cluster %d custom %d split %d reduction %d"
        " workspace %zu | %s | %s | %s",
        Name(type), m, bf16_out ? "bf16" : "f32",
        type != Type::kE4m3 ? ""
        : fast              ? ", fast"
                            : ", not fast",
        Config(algorithm, CUBLASLT_ALGO_CONFIG_ID), Config(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID),
        Config(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID),
        Config(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID),
        Config(algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
        Config(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
        Config(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME), found.workspaceSize,
        differs(buffers.chain).c_str(), differs(buffers.wgmma).c_str(),
        type == Type::kE4m3 ? "-" : differs(buffers.half).c_str());
  }
}

}  // namespace

void CompareCublas(Report& report, Type type) {
  constexpr int kMaxM = 1024, kN = 4096;
  const int k = 4096, bytes = k * (type == Type::kE4m3 ? 1 : 2);
  Buffers buffers;
  buffers.x = Upload(MakeOperand(type, Inputs::kNormal, kMaxM, bytes, 11, false));
  buffers.w = Upload(MakeOperand(type, Inputs::kNormal, kN, bytes, 12, false));
  const size_t out_bytes = size_t{kMaxM} * kN * 4;
  for (DeviceMemory* memory : {&buffers.chain, &buffers.half, &buffers.wgmma, &buffers.out}) {
    *memory = DeviceMemory(out_bytes);
  }
  Chain chain{type,
              buffers.x.As<uint8_t>(),
              buffers.w.As<uint8_t>(),
              kMaxM,
              kN,
              bytes,
              nullptr,
              buffers.chain.As<float>(),
              kN,
              1};
  RunMma(chain);
  chain.out = buffers.half.As<float>();
  RunMmaHalf(chain);
  chain.out = buffers.wgmma.As<float>();
  RunWgmma(chain, 64);
  report.Table(
      std::string("cuBLASLt without split-K, N = K = 4096: bits that differ, ") + Name(type),
      "type | M | output | algorithm | from mma.sync | from wgmma | from mma.sync of half "
      "the k");
  for (const size_t workspace : {size_t{256}, size_t{32} << 20}) {
    buffers.workspace = DeviceMemory(workspace);
    for (const bool fast : {false, true}) {
      if (fast && type != Type::kE4m3) continue;
      for (const int m : {1, 8, 16, 64, 256, 1024}) {
        for (const bool bf16_out : {true, false}) {
          if (bf16_out && type == Type::kF16) continue;
          if (report.SecondsLeft() < 20) return;
          CompareShape(report, type, bf16_out, fast, m, kN, k, buffers);
        }
      }
    }
  }
}

}  // namespace probe
