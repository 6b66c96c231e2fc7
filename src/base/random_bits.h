#pragma once

#include <cstdint>

namespace tokamak {

// Unpredictable bits from the system, for seeds and salts. Thread-safe.
uint64_t RandomBits();
// A random request seed of 53 bits, which every JSON reader represents exactly.
inline uint64_t RandomSeed() { return RandomBits() >> 11; }

}  // namespace tokamak
