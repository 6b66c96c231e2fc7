// Where TMA puts 16-byte chunks in shared memory, so that neither rows nor columns of a tile share
// banks; tensor cores read this order.
#pragma once

#include <cstdint>

namespace tokamak::cuda::emulation {

// Returns the place in shared memory of what would lie at `address` without a swizzle. In a span of
// 32, 64 or 128 bytes (0: none), chunks change places by the number of their 128-byte line.
inline uint32_t Swizzle(uint32_t address, int span) {
  const uint32_t columns = span == 0 ? 0 : static_cast<uint32_t>(span) - 16;  // bits from 4 on
  return address ^ (address >> 3 & columns);
}

}  // namespace tokamak::cuda::emulation
