// Whether this is compiled for a CPU, with ops/cuda/emulation in place of CUDA.
#pragma once

namespace tokamak::cuda {

inline constexpr bool kIsEmulated = TOKAMAK_CUDA_EMULATED;

}  // namespace tokamak::cuda
