// A tensor map as the emulator keeps it in a CUtensorMap, and the boxes that it describes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <cuda.h>
#include "ops/cuda/emulation/sanitizers.h"

namespace tokamak::cuda::emulation {

inline constexpr size_t kMaxRank = 5;

using Coordinates = std::array<int, kMaxRank>;

// Dimensions start with the innermost.
struct TensorMap {
  uint64_t magic;
  std::byte* data;
  uint64_t sizes[kMaxRank];  // elements
  uint64_t strides[kMaxRank];
  uint16_t box[kMaxRank];  // elements
  uint8_t rank;
  uint8_t element_bytes;
  uint8_t span;  // of the swizzle, in bytes

  size_t BoxBytes() const;
};
static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap));

// Returns false if cuTensorMapEncodeTiled did not make `from`.
bool ReadTensorMap(const CUtensorMap& from, TensorMap& to);

// Read or write the box at these coordinates, row by row. Elements outside of the tensor are read
// as zeros and not written, except that writes fill the padding of its rows to multiples of 16
// bytes. For the sanitizers the access happens in `context`.
std::vector<std::byte> ReadBox(const TensorMap& map, const Coordinates& at,
                               sanitizers::Context context);
void WriteBox(const TensorMap& map, const Coordinates& at, const std::vector<std::byte>& bytes,
              sanitizers::Context context);

// The same bytes in shared memory, swizzled.
std::vector<std::byte> ReadSwizzled(const TensorMap& map, const void* shared);
void WriteSwizzled(const TensorMap& map, void* shared, const std::vector<std::byte>& bytes);

}  // namespace tokamak::cuda::emulation
