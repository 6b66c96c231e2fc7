// Fast non-cryptographic hashing (XXH3). If an attacker chooses the data and others share the
// hashes, salt it or use SHA-256.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tokamak {

uint64_t Hash64(const void* data, size_t size, uint64_t seed = 0);

}  // namespace tokamak
