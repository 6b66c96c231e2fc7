// Do cuBLASLt's algorithms without split-K give the bits of one chain of mma.sync over k?
#include "bench/gpu_probe/bits.h"
#include "bench/gpu_probe/cublas_product.h"

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
  const CublasProduct product(CudaType(type), bf16_out ? CUDA_R_16BF : CUDA_R_32F, m, n, k, fast);
  const auto algorithms = product.Algorithms(buffers.workspace.bytes(), false, 16);
  const size_t count = static_cast<size_t>(m) * static_cast<size_t>(n);
  if (algorithms.empty()) report.Row("%s | %d | - | no algorithm | - | - | -", Name(type), m);
  for (const auto& found : algorithms) {
    PROBE_CHECK(cudaMemset(buffers.out.As(), 0xFF, buffers.out.bytes()));
    const cublasStatus_t status =
        product.Run(found.algo, buffers.w.As(), buffers.x.As(), buffers.out.As(),
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
          if (!report.HasSeconds(20)) return;
          CompareShape(report, type, bf16_out, fast, m, kN, k, buffers);
        }
      }
    }
  }
}

}  // namespace probe
