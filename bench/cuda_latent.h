// Times the kernels of latent attention.
#pragma once

#include "cuda_device.h"

namespace tokamak::cuda {

// Prints a line of JSON for each case.
void BenchLatent(Device& device);

}  // namespace tokamak::cuda
