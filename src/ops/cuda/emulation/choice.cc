#include "ops/cuda/emulation/choice.h"

#include <cstdlib>

namespace tokamak::cuda::emulation {
namespace {

uint64_t ReadSeed() {
  const char* text = std::getenv("TOKAMAK_EMULATION_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
}

}  // namespace

const uint64_t kChoiceSeed = ReadSeed();
uint64_t choice_state = kChoiceSeed * 0x9e3779b97f4a7c15;

}  // namespace tokamak::cuda::emulation
