#include "ops/cuda/testing/device_math.h"

#include "ops/cuda/device.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/testing/device_array.h"
#if TOKAMAK_CUDA_EMULATED
#include "ops/cuda/emulation/primitives.h"
#endif

namespace tokamak::cuda {
namespace {

constexpr unsigned kThreads = 128;

template <bool kLog>
__global__ void MathKernel(const float* in, float* out, size_t count) {
  const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) out[i] = kLog ? log2f(in[i]) : exp2f(in[i]);
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

std::vector<float> DeviceLog2(const std::vector<float>& values) { return OnDevice<true>(values); }

}  // namespace tokamak::cuda
