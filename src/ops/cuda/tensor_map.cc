#include "ops/cuda/tensor_map.h"

#include <cuda_runtime_api.h>

#include <iterator>
#include <map>

namespace tokamak::cuda {
namespace {

// Finds the function at run time. The library is not linked with the driver's, which exists only on
// machines with a GPU.
decltype(&cuTensorMapEncodeTiled) FindEncodeTiled() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = {};
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             12000, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

}  // namespace

CUresult MakeTensorMap(const BoxedTensor& tensor, CUtensorMap* map) {
  static const auto encode = FindEncodeTiled();
  if (encode == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  static const std::map<int, CUtensorMapDataType> types = {{1, CU_TENSOR_MAP_DATA_TYPE_UINT8},
                                                           {2, CU_TENSOR_MAP_DATA_TYPE_UINT16},
                                                           {4, CU_TENSOR_MAP_DATA_TYPE_UINT32}};
  static const std::map<int, CUtensorMapSwizzle> swizzles = {{0, CU_TENSOR_MAP_SWIZZLE_NONE},
                                                             {32, CU_TENSOR_MAP_SWIZZLE_32B},
                                                             {64, CU_TENSOR_MAP_SWIZZLE_64B},
                                                             {128, CU_TENSOR_MAP_SWIZZLE_128B}};
  const size_t rank = tensor.sizes.size();
  const auto type = types.find(tensor.element_bytes);
  const auto swizzle = swizzles.find(tensor.swizzle);
  constexpr uint32_t kSteps[PerDimension<uint32_t>::kMost] = {1, 1, 1, 1, 1};
  if (type == types.end() || swizzle == swizzles.end() || rank > std::size(kSteps) ||
      tensor.box.size() != rank || tensor.strides.size() + 1 != rank) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return encode(map, type->second, static_cast<uint32_t>(rank), tensor.data, tensor.sizes.data(),
                tensor.strides.data(), tensor.box.data(), kSteps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle->second, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace tokamak::cuda
