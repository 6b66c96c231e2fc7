// Fast non-cryptographic hashing (XXH3). For anything a stranger chooses and others share, salt it
// or use SHA-256 instead.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tokamak {

uint64_t Hash64(const void* data, size_t size, uint64_t seed = 0);

}  // namespace tokamak
