#include "base/hash.h"

#include <xxhash.h>

namespace tokamak {

uint64_t Hash64(const void* data, size_t size, uint64_t seed) {
  return XXH3_64bits_withSeed(data, size, seed);
}

}  // namespace tokamak
