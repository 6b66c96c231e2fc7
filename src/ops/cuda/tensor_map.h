// Tensor maps describe a tensor to TMA, so that it can copy boxes of it. The host makes a map and
// passes it to a kernel as `const __grid_constant__ CUtensorMap map`; ptx.h has the copies.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

namespace tokamak::cuda {

// Dimensions start with the innermost, whose elements are neighbours.
struct BoxedTensor {
  void* data = nullptr;           // in device memory, aligned to 16 bytes
  int element_bytes = 0;          // 1, 2 or 4
  std::vector<uint64_t> sizes;    // elements along each of 1 to 5 dimensions
  std::vector<uint64_t> strides;  // bytes, multiples of 16; the innermost dimension has none
  std::vector<uint32_t> box;      // elements along each dimension, up to 256
  // 0, or 32, 64 or 128: bytes of a box's row, whose 16-byte chunks are spread over the banks.
  int swizzle = 0;
};

// Returns cuTensorMapEncodeTiled's error: CUDA_ERROR_INVALID_VALUE if the tensor is not as
// described above.
CUresult MakeTensorMap(const BoxedTensor& tensor, CUtensorMap* map);

}  // namespace tokamak::cuda
