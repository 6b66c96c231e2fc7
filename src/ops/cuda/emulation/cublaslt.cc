// The emulated cuBLASLt. It has what makes the real one dangerous: algorithms that claim not to
// split K, and yet sum it in parts, whose number depends on the number of tiles of the output. So
// bits depend on M unless the caller has compared the algorithms' results.
#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/cuda/emulation/choice.h"
#include "ops/cuda/emulation/stream.h"
#include "quant/half.h"

namespace emulation = tokamak::cuda::emulation;

struct EmulatedBlas {};

namespace {

constexpr uint32_t kAlignment = 16;  // bytes, of every operand and row
constexpr uint64_t kTile = 64;

// An algorithm, in cublasLtMatmulAlgo_t::data. There is one for each shape [N, K] and place in the
// heuristics' list.
enum Field { kReportedSplits, kParts, kMaxTiles };
// Returns in how many parts K is summed for an output of so many tiles.
uint64_t Parts(const cublasLtMatmulAlgo_t& algorithm, uint64_t tiles) {
  return tiles <= algorithm.data[kMaxTiles] ? algorithm.data[kParts] : 1;
}

uint64_t Tiles(uint64_t rows) { return (rows + kTile - 1) / kTile; }

struct Product {  // out[m, n] = Σ_k x[m, k] · w[n, k]
  const uint16_t* w;
  const uint16_t* x;
  void* out;
  bool out_bf16;                            // else f32
  uint64_t num_rows, num_cols, num_tokens;  // N, K, M
  int64_t w_stride, x_stride, out_stride;
  uint64_t parts;
};

// Computes columns [first, first + kWidth) of out. Each part of K is summed in ascending k.
constexpr uint64_t kWidth = 32;
void Multiply(const Product& p, uint64_t first) {
  const uint64_t width = std::min(kWidth, p.num_rows - first);
  std::vector<float> w(p.num_cols * kWidth);  // [k, n]
  for (uint64_t j = 0; j < width; ++j) {
    const uint16_t* const row = p.w + static_cast<int64_t>(first + j) * p.w_stride;
    for (uint64_t k = 0; k < p.num_cols; ++k) w[k * kWidth + j] = tokamak::BFloat16ToFloat(row[k]);
  }
  for (uint64_t m = 0; m < p.num_tokens; ++m) {
    const uint16_t* const x = p.x + static_cast<int64_t>(m) * p.x_stride;
    float total[kWidth] = {};
    for (uint64_t part = 0; part < p.parts; ++part) {
      float sums[kWidth] = {};
      const uint64_t end = (part + 1) * p.num_cols / p.parts;
      for (uint64_t k = part * p.num_cols / p.parts; k < end; ++k) {
        const float value = tokamak::BFloat16ToFloat(x[k]);
        for (uint64_t j = 0; j < kWidth; ++j) sums[j] += value * w[k * kWidth + j];
      }
      for (uint64_t j = 0; j < kWidth; ++j) total[j] += sums[j];
    }
    const uint64_t at = m * static_cast<uint64_t>(p.out_stride) + first;
    if (!p.out_bf16) {
      std::memcpy(static_cast<float*>(p.out) + at, total, width * sizeof(float));
      continue;
    }
    auto* out = static_cast<uint16_t*>(p.out) + at;
    for (uint64_t j = 0; j < width; ++j) out[j] = tokamak::FloatToBFloat16(total[j]);
  }
}

bool IsAligned(const void* data, int64_t stride_bytes) {
  return (reinterpret_cast<int64_t>(data) | stride_bytes) % kAlignment == 0;
}

}  // namespace

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "CUBLAS_STATUS";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new EmulatedBlas;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return cudaDeviceSynchronize() == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDescOpaque_t* operation, cublasComputeType_t,
                                      cudaDataType_t) {
  *operation = {};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDescOpaque_t* operation,
                                              cublasLtMatmulDescAttributes_t, const void* value,
                                              size_t bytes) {
  cublasOperation_t transform = {};
  if (bytes != sizeof(transform)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&transform, value, bytes);
  operation->a_transposed = transform == CUBLAS_OP_T;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayoutOpaque_t* layout, cudaDataType_t type,
                                        uint64_t rows, uint64_t cols, int64_t stride) {
  *layout = {.type = type, .rows = rows, .cols = cols, .stride = stride};
  return static_cast<int64_t>(rows) <= stride ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreferenceOpaque_t* preference) {
  *preference = {.min_alignment = 256};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreferenceOpaque_t* preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  if (attribute < CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) return CUBLAS_STATUS_SUCCESS;
  uint32_t alignment = 0;
  if (bytes != sizeof(alignment)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&alignment, value, bytes);
  preference->min_alignment = std::min(preference->min_alignment, alignment);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t,
                                                    void* value, size_t bytes, size_t* written) {
  const auto splits = static_cast<int32_t>(algorithm->data[kReportedSplits]);
  if (bytes != sizeof(splits)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(value, &splits, bytes);
  *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDescOpaque_t* operation, cublasLtMatrixLayoutOpaque_t* a,
    cublasLtMatrixLayoutOpaque_t* b, cublasLtMatrixLayoutOpaque_t*, cublasLtMatrixLayoutOpaque_t*,
    cublasLtMatmulPreferenceOpaque_t* preference, int requested,
    cublasLtMatmulHeuristicResult_t* results, int* count) {
  *count = 0;
  if (!operation->a_transposed || preference->min_alignment < kAlignment) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const uint64_t shape = a->cols * 0x10001 + a->rows;
  const uint64_t tiles = Tiles(a->cols) * Tiles(b->cols);
  // One in eight shapes has no algorithm that always sums K in one part.
  const bool has_steady = emulation::ChooseFor(shape, 8) != 0;
  const uint64_t steady = emulation::ChooseFor(shape + tiles, 4);
  for (uint64_t i = 0; i < 4 && *count < requested; ++i) {
    cublasLtMatmulAlgo_t algorithm = {};
    algorithm.data[kReportedSplits] = 1;
    algorithm.data[kParts] = 1;
    if (!has_steady || i != steady) {
      // Sums K in parts for outputs of up to a number of tiles that is drawn, in [1, 2 · tiles].
      algorithm.data[kParts] = 2 + emulation::ChooseFor(shape + i, 3);
      algorithm.data[kMaxTiles] = emulation::ChooseFor(shape + 4 + i, 2 * tiles) + 1;
      if (emulation::ChooseFor(shape + 8 + i, 4) == 0) algorithm.data[kReportedSplits] = 2;
    }
    results[(*count)++] = {.algo = algorithm, .workspaceSize = 0, .state = CUBLAS_STATUS_SUCCESS};
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDescOpaque_t*, const void*,
                              const void* a, cublasLtMatrixLayoutOpaque_t* a_layout, const void* b,
                              cublasLtMatrixLayoutOpaque_t* b_layout, const void*, const void*,
                              cublasLtMatrixLayoutOpaque_t*, void* d,
                              cublasLtMatrixLayoutOpaque_t* d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void*, size_t,
                              cudaStream_t stream) {
  const bool out_bf16 = d_layout->type == CUDA_R_16BF;
  if (!IsAligned(a, 2 * a_layout->stride) || !IsAligned(b, 2 * b_layout->stride) ||
      !IsAligned(d, (out_bf16 ? 2 : 4) * d_layout->stride)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const Product product = {
      .w = static_cast<const uint16_t*>(a),
      .x = static_cast<const uint16_t*>(b),
      .out = d,
      .out_bf16 = out_bf16,
      .num_rows = a_layout->cols,
      .num_cols = a_layout->rows,
      .num_tokens = b_layout->cols,
      .w_stride = a_layout->stride,
      .x_stride = b_layout->stride,
      .out_stride = d_layout->stride,
      .parts = Parts(*algorithm, Tiles(a_layout->cols) * Tiles(b_layout->cols))};
  emulation::EnqueueWork(
      [product] {
        for (uint64_t first = 0; first < product.num_rows; first += kWidth) {
          Multiply(product, first);
        }
      },
      stream);
  return CUBLAS_STATUS_SUCCESS;
}
