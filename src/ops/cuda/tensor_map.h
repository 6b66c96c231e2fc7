// Tensor maps describe a tensor to TMA, so that it can copy boxes of it. The host makes a map and
// passes it to a kernel as `const __grid_constant__ CUtensorMap map`; ptx.h has the copies.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace tokamak::cuda {

// A value for each of up to 5 dimensions. Allocates nothing, because kernels are launched, and maps
// made for them, during steps.
template <typename T>
class PerDimension {
 public:
  static constexpr size_t kMost = 5;

  PerDimension() = default;
  PerDimension(std::initializer_list<T> values) : size_(values.size()) {
    std::copy_n(values.begin(), std::min(size_, kMost), values_.begin());
  }

  // The number of values given. Only the first kMost are kept.
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return values_[i]; }
  const T& operator[](size_t i) const { return values_[i]; }
  const T& back() const { return values_[size_ - 1]; }
  const T* begin() const { return values_.data(); }
  const T* end() const { return values_.data() + size_; }
  const T* data() const { return values_.data(); }

 private:
  std::array<T, kMost> values_ = {};
  size_t size_ = 0;
};

// Dimensions start with the innermost, whose elements are neighbours.
struct BoxedTensor {
  void* data = nullptr;            // in device memory, aligned to 16 bytes
  int element_bytes = 0;           // 1, 2 or 4
  PerDimension<uint64_t> sizes;    // elements
  PerDimension<uint64_t> strides;  // bytes, multiples of 16; the innermost dimension has none
  PerDimension<uint32_t> box;      // elements, up to 256
  // 0, or 32, 64 or 128: bytes of a box's row, whose 16-byte chunks are spread over the banks.
  int swizzle = 0;
};

// Returns cuTensorMapEncodeTiled's error: CUDA_ERROR_INVALID_VALUE if the tensor is not as
// described above.
CUresult MakeTensorMap(const BoxedTensor& tensor, CUtensorMap* map);

}  // namespace tokamak::cuda
