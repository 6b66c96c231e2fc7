#include "ops/cuda/testing/device_math.h"

#include "ops/cuda/activation.cuh"
#include "ops/cuda/device.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/ptx.h"

namespace tokamak::cuda {
namespace {

constexpr unsigned kThreads = 128;

enum class Function { kExp2, kLog2, kReciprocal, kSilu, kGeluTanh };

template <Function kFunction>
__device__ float Apply(float x) {
  if constexpr (kFunction == Function::kExp2) {
    return exp2f(x);
  } else if constexpr (kFunction == Function::kLog2) {
    return log2f(x);
  } else if constexpr (kFunction == Function::kReciprocal) {
    return __fdividef(1.0f, x);
  } else {
    return SiluOrGeluTanh(kFunction == Function::kGeluTanh, x);
  }
}

template <Function kFunction>
__global__ void MathKernel(const float* in, float* out, size_t count) {
  const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) out[i] = Apply<kFunction>(in[i]);
}

__global__ void StoreLateKernel(const int32_t* at, const uint32_t* words, uint32_t* out,
                                size_t count) {
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) out[at[i]] = words[i];
}

template <Function kFunction>
std::vector<float> OnDevice(const std::vector<float>& values) {
  const DeviceArray<float> in(values);
  const DeviceArray<float> out(values.size());
  const CudaTestStream stream;
  const auto ctas = static_cast<unsigned>((values.size() + kThreads - 1) / kThreads);
  EXPECT_EQ(LaunchKernel(&MathKernel<kFunction>, ctas, kThreads, 0, stream.get(), in.data(),
                         out.data(), values.size()),
            cudaSuccess);
  return out.Download(stream);
}

}  // namespace

emulation::Arithmetic TensorCoreSums() {
#if TOKAMAK_CUDA_EMULATED
  return emulation::kArithmetic;
#else
  return emulation::Arithmetic::kHopper;
#endif
}

std::vector<float> DeviceExp2(const std::vector<float>& values) {
  return OnDevice<Function::kExp2>(values);
}

void StoreLate(const DeviceArray<int32_t>& at, const DeviceArray<uint32_t>& words, uint32_t* out,
               const CudaTestStream& stream) {
  const auto ctas = static_cast<unsigned>((words.size() + kThreads - 1) / kThreads);
  EXPECT_EQ(LaunchDependent(&StoreLateKernel, ctas, kThreads, stream.get(), at.data(), words.data(),
                            out, words.size()),
            cudaSuccess);
}

std::vector<float> DeviceLog2(const std::vector<float>& values) {
  return OnDevice<Function::kLog2>(values);
}

std::vector<float> DeviceReciprocal(const std::vector<float>& values) {
  return OnDevice<Function::kReciprocal>(values);
}

std::vector<float> DeviceSilu(const std::vector<float>& values) {
  return OnDevice<Function::kSilu>(values);
}

std::vector<float> DeviceGeluTanh(const std::vector<float>& values) {
  return OnDevice<Function::kGeluTanh>(values);
}

}  // namespace tokamak::cuda
