#include "bench/gpu_probe/cublas_product.h"

#include "bench/gpu_probe/probe.h"

namespace probe {

CublasProduct::CublasProduct(cudaDataType_t in, cudaDataType_t out, int m, int n, int k,
                             bool fast) {
  PROBE_CHECK(cublasLtCreate(&handle));
  PROBE_CHECK(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t transposed = CUBLAS_OP_T;
  PROBE_CHECK(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                             sizeof(transposed)));
  const int8_t fast_accumulation = fast ? 1 : 0;
  PROBE_CHECK(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_FAST_ACCUM,
                                             &fast_accumulation, sizeof(fast_accumulation)));
  const auto length = static_cast<uint64_t>(k);
  PROBE_CHECK(cublasLtMatrixLayoutCreate(&w, in, length, static_cast<uint64_t>(n), k));
  PROBE_CHECK(cublasLtMatrixLayoutCreate(&x, in, length, static_cast<uint64_t>(m), k));
  PROBE_CHECK(
      cublasLtMatrixLayoutCreate(&y, out, static_cast<uint64_t>(n), static_cast<uint64_t>(m), n));
}

CublasProduct::~CublasProduct() {
  (void)cublasLtMatrixLayoutDestroy(w);
  (void)cublasLtMatrixLayoutDestroy(x);
  (void)cublasLtMatrixLayoutDestroy(y);
  (void)cublasLtMatmulDescDestroy(description);
  (void)cublasLtDestroy(handle);
}

std::vector<cublasLtMatmulHeuristicResult_t> CublasProduct::Algorithms(size_t workspace, bool split,
                                                                       int count) const {
  cublasLtMatmulPreference_t preference = nullptr;
  PROBE_CHECK(cublasLtMatmulPreferenceCreate(&preference));
  PROBE_CHECK(cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace)));
  const uint32_t schemes = split ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_NONE;
  PROBE_CHECK(cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof(schemes)));
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(count));
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, description, w, x, y, y, preference, count, results.data(), &found);
  (void)cublasLtMatmulPreferenceDestroy(preference);
  results.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(found) : 0);
  return results;
}

cublasStatus_t CublasProduct::Run(const cublasLtMatmulAlgo_t& algorithm, const void* weights,
                                  const void* tokens, void* results, void* workspace,
                                  size_t workspace_bytes, cudaStream_t stream) const {
  const float one = 1, zero = 0;
  return cublasLtMatmul(handle, description, &one, weights, w, tokens, x, &zero, results, y,
                        results, y, &algorithm, workspace, workspace_bytes, stream);
}

}  // namespace probe
