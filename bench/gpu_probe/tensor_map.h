#pragma once

#include <cuda.h>

#include <vector>

namespace probe {

// A tensor map of bf16 values with a 128-byte swizzle. Dimensions start with the innermost, whose
// box is 64 values at most; `strides`, in bytes, are those of all dimensions but the innermost.
CUtensorMap MakeTensorMap(void* data, const std::vector<cuuint64_t>& sizes,
                          const std::vector<cuuint64_t>& strides,
                          const std::vector<cuuint32_t>& box, CUtensorMapL2promotion promotion);

}  // namespace probe
