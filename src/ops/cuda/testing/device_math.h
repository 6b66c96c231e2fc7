// What recipes of kernels need that a processor's own library need not give to the bit.
#pragma once

#include <vector>

#include "ops/cuda/emulation/tensor_core_arithmetic.h"

namespace tokamak::cuda {

// How the tensor cores add that run the kernels under test.
emulation::Arithmetic TensorCoreSums();

// The device's exp2f and log2f of each value.
std::vector<float> DeviceExp2(const std::vector<float>& values);
std::vector<float> DeviceLog2(const std::vector<float>& values);

}  // namespace tokamak::cuda
