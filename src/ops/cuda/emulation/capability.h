// Which GPU the emulator is: a Hopper by default, or what TOKAMAK_EMULATION_CAPABILITY says. Only
// what a kernel may use depends on it; sums of tensor cores are always Hopper's.
#pragma once

#include <cstddef>

namespace tokamak::cuda::emulation {

// 90 stands for compute capability 9.0.
extern const int kCapability;

// Bytes of shared memory that a CTA may ask for.
constexpr size_t MaxShared(int capability) {
  if (capability == 90 || capability / 10 == 10) return 227 << 10;
  return (capability == 80 || capability == 87 ? 163 : 99) << 10;
}

// Ends the process if the emulated GPU is older than Hopper, which has the instruction.
void RequireHopper(const char* instruction);

}  // namespace tokamak::cuda::emulation
