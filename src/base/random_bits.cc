#include "base/random_bits.h"

#include <random>

namespace tokamak {

uint64_t RandomBits() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace tokamak
