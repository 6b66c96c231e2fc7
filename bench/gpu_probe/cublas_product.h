#pragma once

#include <cublasLt.h>

#include <vector>

namespace probe {

// cuBLASLt's Y[m, n] = X[m, k] W[n, k]^T, all rows contiguous, accumulated in f32. cuBLAS, which is
// column-major, sees Y^T = (W^T)^T X^T.
struct CublasProduct {
  // `fast`: FP8's accumulation without promotion to f32.
  CublasProduct(cudaDataType_t in, cudaDataType_t out, int m, int n, int k, bool fast = false);
  ~CublasProduct();
  CublasProduct(const CublasProduct&) = delete;
  CublasProduct& operator=(const CublasProduct&) = delete;

  // At most `count` proposals, best first; those of split-K only with `split`.
  std::vector<cublasLtMatmulHeuristicResult_t> Algorithms(size_t workspace, bool split,
                                                          int count) const;
  cublasStatus_t Run(const cublasLtMatmulAlgo_t& algorithm, const void* weights, const void* tokens,
                     void* results, void* workspace, size_t workspace_bytes,
                     cudaStream_t stream) const;

  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
};

}  // namespace probe
