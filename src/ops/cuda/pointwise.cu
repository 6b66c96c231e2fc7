// y = f(x) or f(x, y), element by element: AddResidual, Softcap, Clamp, Activate, Convert. x and y
// [T, cols], f32 or bf16, rows contiguous inside; y may be x. Bound by memory: x is read once, and
// y is written once (AddResidual reads it too).
//
// A thread has a group of four neighbouring elements, which one instruction reads or writes if the
// rows' length, strides and addresses allow it; the result is the same either way. All of these are
// dependents.
#include "ops/cuda/activation.cuh"
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_as.cuh"
#include "ops/cuda/ptx.h"

namespace tokamak::cuda {
namespace {

constexpr int kThreads = 256;

struct Add {
  static constexpr bool kReadsY = true;
  static __device__ float Of(const PointwiseArgs& a, float x, float y) { return y + a.scale * x; }
};
struct Cap {
  static constexpr bool kReadsY = false;
  static __device__ float Of(const PointwiseArgs& a, float x, float /*y*/) {
    return a.limit * tanhf(x / a.limit);
  }
};
struct Clip {
  static constexpr bool kReadsY = false;
  static __device__ float Of(const PointwiseArgs& a, float x, float /*y*/) {
    return Clamped(x, a.limit);
  }
};
struct Activated {
  static constexpr bool kReadsY = false;
  static __device__ float Of(const PointwiseArgs& a, float x, float /*y*/) {
    if (a.activation == Activation::kGelu) return Gelu(x);
    if (a.activation == Activation::kQuickGelu) return QuickGelu(x);
    return SiluOrGeluTanh(a.activation == Activation::kGeluTanh, x);
  }
};
struct Same {
  static constexpr bool kReadsY = false;
  static __device__ float Of(const PointwiseArgs& /*a*/, float x, float /*y*/) { return x; }
};

// A CTA has a part of a row: kThreads groups of four columns.
template <typename F, typename X, typename Y, bool kVectors>
__global__ void __launch_bounds__(kThreads) PointwiseKernel(const PointwiseArgs a) {
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  const int64_t t = blockIdx.x;
  const int64_t i = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * 4;
  if (i >= a.cols) return;
  const auto* x = static_cast<const typename X::Storage*>(a.x) + t * a.x_stride + i;
  auto* y = static_cast<typename Y::Storage*>(a.y) + t * a.y_stride + i;
  float values[4], old[4] = {};
  LoadFour<X, kVectors>(x, a.cols - i, values);
  if constexpr (F::kReadsY) LoadFour<Y, kVectors>(y, a.cols - i, old);
#pragma unroll
  for (int j = 0; j < 4; ++j) values[j] = F::Of(a, values[j], old[j]);
  StoreFour<Y, kVectors>(values, a.cols - i, y);
}

bool FitsVectors(const PointwiseArgs& a) {
  return a.cols % 4 == 0 && FitsFours(a.x, a.x_stride, ElementBytes(a.x_bf16)) &&
         FitsFours(a.y, a.y_stride, ElementBytes(a.y_bf16));
}

cudaError_t Launch(void (*kernel)(PointwiseArgs), const PointwiseArgs& args, cudaStream_t stream) {
  if (args.num_tokens * args.cols == 0) return cudaSuccess;
  const dim3 grid(Grid(args.num_tokens, 1), Grid(args.cols, int64_t{4} * kThreads));
  return LaunchDependent(kernel, grid, kThreads, stream, args);
}

}  // namespace

cudaError_t LaunchAddResidual(const PointwiseArgs& args, cudaStream_t stream) {
  return LaunchAs(args.x_bf16, FitsVectors(args), [&]<typename X, bool kVectors>() {
    return Launch(&PointwiseKernel<Add, X, F32, kVectors>, args, stream);
  });
}

cudaError_t LaunchSoftcap(const PointwiseArgs& args, cudaStream_t stream) {
  const auto kernel = FitsVectors(args) ? &PointwiseKernel<Cap, F32, F32, true>
                                        : &PointwiseKernel<Cap, F32, F32, false>;
  return Launch(kernel, args, stream);
}

cudaError_t LaunchClamp(const PointwiseArgs& args, cudaStream_t stream) {
  return LaunchAs(args.x_bf16, FitsVectors(args), [&]<typename X, bool kVectors>() {
    return Launch(&PointwiseKernel<Clip, X, X, kVectors>, args, stream);
  });
}

cudaError_t LaunchActivate(const PointwiseArgs& args, cudaStream_t stream) {
  return LaunchAs(args.x_bf16, args.y_bf16, FitsVectors(args),
                  [&]<typename X, typename Y, bool kVectors>() {
                    return Launch(&PointwiseKernel<Activated, X, Y, kVectors>, args, stream);
                  });
}

cudaError_t LaunchConvert(const PointwiseArgs& args, cudaStream_t stream) {
  return LaunchAs(args.y_bf16, FitsVectors(args), [&]<typename Y, bool kVectors>() {
    return Launch(&PointwiseKernel<Same, F32, Y, kVectors>, args, stream);
  });
}

}  // namespace tokamak::cuda
