#pragma once

#include <cstdint>

namespace tokamak {

// Bits that nobody outside can predict, from the system: for seeds and salts. Thread-safe.
uint64_t RandomBits();
// A seed for a request: 53 bits, which every reader of JSON takes exactly.
inline uint64_t RandomSeed() { return RandomBits() >> 11; }

}  // namespace tokamak
