// Times the kernels between products and attention.
#pragma once

#include "cuda_device.h"

namespace tokamak::cuda {

// Prints a line of JSON for each case.
void BenchElementwise(Device& device);

}  // namespace tokamak::cuda
