// Where TMA puts 16-byte chunks in shared memory, so that neither rows nor columns of a tile share
// banks; tensor cores read this order.
#pragma once

#include <cstdint>

namespace tokamak::cuda::emulation {

// Returns where something lies in shared memory that would be at `address` without a swizzle. The
// chunks of each span of 32, 64 or 128 bytes change places, depending on the number of their
// 128-byte line. Span 0: no swizzle.
inline uint32_t Swizzle(uint32_t address, int span) {
  const uint32_t columns = span == 0 ? 0 : static_cast<uint32_t>(span) - 16;  // bits from 4 on
  return address ^ (address >> 3 & columns);
}

}  // namespace tokamak::cuda::emulation
