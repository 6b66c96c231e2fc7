#include "ops/cuda/emulation/capability.h"

#include <fmt/format.h>

#include <cstdlib>

#include "ops/cuda/emulation/thread.h"

namespace tokamak::cuda::emulation {

const int kCapability = [] {
  const char* const text = std::getenv("TOKAMAK_EMULATION_CAPABILITY");
  return text != nullptr ? std::atoi(text) : 90;
}();

void RequireHopper(const char* instruction) {
  if (kCapability >= 90) return;
  Fail(fmt::format("{}: a GPU of compute capability {}.{} does not have it", instruction,
                   kCapability / 10, kCapability % 10));
}

}  // namespace tokamak::cuda::emulation
