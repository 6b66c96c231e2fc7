// Times the kernels of MoE layers.
#pragma once

#include "cuda_device.h"

namespace tokamak::cuda {

// Prints a line of JSON for each case.
void BenchExperts(Device& device);

}  // namespace tokamak::cuda
