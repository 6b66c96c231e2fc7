// Functions that tests of kernels need with the device's bits, which the host's library may lack.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/cuda/emulation/tensor_core_arithmetic.h"
#include "ops/cuda/testing/device_array.h"

namespace tokamak::cuda {

// How the tensor cores that run the kernels under test add.
emulation::Arithmetic TensorCoreSums();

// The device's exp2f, log2f, 1 / x (__fdividef) and activations of each value.
std::vector<float> DeviceExp2(const std::vector<float>& values);
std::vector<float> DeviceLog2(const std::vector<float>& values);
std::vector<float> DeviceReciprocal(const std::vector<float>& values);
std::vector<float> DeviceSilu(const std::vector<float>& values);
std::vector<float> DeviceGeluTanh(const std::vector<float>& values);

// out[at[i]] = words[i], by a kernel that lets the next one begin before it writes.
void StoreLate(const DeviceArray<int32_t>& at, const DeviceArray<uint32_t>& words, uint32_t* out,
               const CudaTestStream& stream);

}  // namespace tokamak::cuda
