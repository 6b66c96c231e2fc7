// The two forms in which some kernels on tensor cores exist. On Hopper, which can run both, they
// give the same bits.
#pragma once

#include <cstdint>

namespace tokamak::cuda {

enum class KernelForm : uint8_t {
  kHopper,  // TMA and, in products, wgmma
  kAmpere,  // cp.async and mma.sync, which all GPUs since compute capability 8.0 have
};

// `capability`: 90 stands for 9.0.
constexpr KernelForm FormFor(int capability) {
  return capability == 90 ? KernelForm::kHopper : KernelForm::kAmpere;
}

// Code for Hopper alone leaves the other form out, to build faster; launches of it fail.
#ifdef TOKAMAK_CUDA_ONLY_HOPPER
inline constexpr bool kHasAmpereForm = false;
#else
inline constexpr bool kHasAmpereForm = true;
#endif

}  // namespace tokamak::cuda
