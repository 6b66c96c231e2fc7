#include "ops/cuda/testing/device_math.h"

#include "ops/cuda/device.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/ptx.h"

namespace tokamak::cuda {
namespace {

constexpr unsigned kThreads = 128;

template <bool kLog>
__global__ void MathKernel(const float* in, float* out, size_t count) {
  const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) out[i] = kLog ? log2f(in[i]) : exp2f(in[i]);
}

__global__ void StoreLateKernel(const int32_t* at, const uint32_t* words, uint32_t* out,
                                size_t count) {
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) out[at[i]] = words[i];
}

template <bool kLog>
std::vector<float> OnDevice(const std::vector<float>& values) {
  const DeviceArray<float> in(values);
  const DeviceArray<float> out(values.size());
  const CudaTestStream stream;
  const auto ctas = static_cast<unsigned>((values.size() + kThreads - 1) / kThreads);
  EXPECT_EQ(LaunchKernel(&MathKernel<kLog>, ctas, kThreads, 0, stream.get(), in.data(), out.data(),
                         values.size()),
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

std::vector<float> DeviceExp2(const std::vector<float>& values) { return OnDevice<false>(values); }

void StoreLate(const DeviceArray<int32_t>& at, const DeviceArray<uint32_t>& words, uint32_t* out,
               const CudaTestStream& stream) {
  const auto ctas = static_cast<unsigned>((words.size() + kThreads - 1) / kThreads);
  EXPECT_EQ(LaunchGroups({.dependent = true}, &StoreLateKernel, ctas, kThreads, 0, stream.get(),
                         at.data(), words.data(), out, words.size()),
            cudaSuccess);
}

std::vector<float> DeviceLog2(const std::vector<float>& values) { return OnDevice<true>(values); }

}  // namespace tokamak::cuda
