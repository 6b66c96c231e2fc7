#include "bench/gpu_probe/tensor_map.h"

#include <cstdlib>

#include "bench/gpu_probe/probe.h"

namespace probe {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

EncodeTiled FindEncodeTiled() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  PROBE_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                               cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess) {
    std::printf("the driver has no cuTensorMapEncodeTiled\n");
    std::exit(1);
  }
  return reinterpret_cast<EncodeTiled>(function);
}

}  // namespace

CUtensorMap MakeTensorMap(void* data, const std::vector<cuuint64_t>& sizes,
                          const std::vector<cuuint64_t>& strides,
                          const std::vector<cuuint32_t>& box, CUtensorMapL2promotion promotion) {
  static const EncodeTiled encode = FindEncodeTiled();
  const std::vector<cuuint32_t> steps(sizes.size(), 1);
  CUtensorMap map{};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, static_cast<cuuint32_t>(sizes.size()), data,
             sizes.data(), strides.data(), box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    std::printf("cuTensorMapEncodeTiled: error %d; box", result);
    for (size_t i = 0; i < box.size(); ++i)
      std::printf(" %u of %llu", box[i], static_cast<unsigned long long>(sizes[i]));
    std::printf("\n");
    std::exit(1);
  }
  return map;
}

}  // namespace probe
