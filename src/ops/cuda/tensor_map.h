// Tensor maps: what TMA has to know of a tensor to copy boxes of it. The host makes one and gives
// it to a kernel as `const __grid_constant__ CUtensorMap map`; ptx.h has the copies.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

namespace tokamak::cuda {

// Dimensions start with the innermost, whose elements are neighbours.
struct BoxedTensor {
  void* data = nullptr;           // of the device, aligned to 16 bytes
  int element_bytes = 0;          // 1, 2 or 4
  std::vector<uint64_t> sizes;    // 1 to 5 of them
  std::vector<uint64_t> strides;  // bytes, multiples of 16, of all dimensions but the innermost
  std::vector<uint32_t> box;      // elements along each dimension, up to 256
  int swizzle = 0;  // 0, or 32, 64, 128: the bytes of the box's rows, which are spread over banks
};

// Returns cuTensorMapEncodeTiled's error: CUDA_ERROR_INVALID_VALUE if the tensor is not as
// described above.
CUresult MakeTensorMap(const BoxedTensor& tensor, CUtensorMap* map);

}  // namespace tokamak::cuda
