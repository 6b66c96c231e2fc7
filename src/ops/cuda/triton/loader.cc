#include "ops/cuda/triton/loader.h"

#include <cstdint>

#include "base/check.h"
#include "base/error.h"

namespace tokamak::cuda {
namespace {

Status CannotLoad(const TritonKernel& kernel, std::string_view what, cudaError_t error) {
  (void)cudaGetLastError();  // so that the next call does not report this error again
  return Unavailable(
      "Triton's kernel {} for rows of up to {} columns, built for compute capability {}.{}, could "
      "not be {}: {} ({})",
      kernel.name, kernel.cols, kernel.capability / 10, kernel.capability % 10, what,
      cudaGetErrorString(error), cudaGetErrorName(error));
}

}  // namespace

Result<std::unique_ptr<TritonNorm>> TritonNorm::Load(std::span<const TritonKernel> kernels,
                                                     int capability,
                                                     std::shared_ptr<const bool> lost) {
  std::unique_ptr<TritonNorm> norm(new TritonNorm(std::move(lost)));
  for (const TritonKernel& kernel : kernels) {
    if (kernel.capability != capability) continue;
    Loaded& loaded = norm->loaded_.emplace_back(Loaded{.kernel = &kernel});
    if (const cudaError_t error = cudaLibraryLoadData(&loaded.library, kernel.code.data(), nullptr,
                                                      nullptr, 0, nullptr, nullptr, 0);
        error != cudaSuccess) {
      loaded.library = nullptr;
      return CannotLoad(kernel, "loaded", error);
    }
    if (const cudaError_t error = cudaLibraryGetKernel(&loaded.entry, loaded.library, kernel.name);
        error != cudaSuccess) {
      return CannotLoad(kernel, "found in its code", error);
    }
  }
  if (norm->loaded_.empty()) {
    return Unavailable(
        "this build has no kernels from Triton for compute capability {}.{}; see "
        "TOKAMAK_CUDA_ARCHITECTURES",
        capability / 10, capability % 10);
  }
  return norm;
}

TritonNorm::~TritonNorm() {
  if (*lost_) return;
  for (const Loaded& loaded : loaded_) {
    if (loaded.library != nullptr) (void)cudaLibraryUnload(loaded.library);
  }
}

const TritonNorm::Loaded* TritonNorm::Find(const NormArgs& args) const {
  // With more than one group of columns, a thread of LaunchAddRmsNorm adds in another order.
  if (args.fours != 1 || !ReadsFours(args)) return nullptr;
  const bool adds = args.x != nullptr && args.residual != nullptr;
  const bool x_bf16 = args.x != nullptr && args.x_bf16;
  for (const Loaded& loaded : loaded_) {
    const TritonKernel& kernel = *loaded.kernel;
    if (kernel.adds == adds && kernel.x_bf16 == x_bf16 && kernel.out_bf16 == args.out_bf16 &&
        args.cols <= kernel.cols) {
      return &loaded;
    }
  }
  return nullptr;
}

cudaError_t TritonNorm::Launch(const NormArgs& args, cudaStream_t stream) const {
  if (args.num_tokens == 0) return cudaSuccess;
  const Loaded* const loaded = Find(args);
  CHECK(loaded != nullptr);
  const TritonKernel& kernel = *loaded->kernel;
  // The kernel's parameters: those that add_rms_norm.py declares, then scratch memory, of which it
  // needs none (compile.py checks both). It reads the only input as x.
  const void* x = args.x != nullptr ? args.x : args.residual;
  int64_t x_stride = args.x != nullptr ? args.x_stride : args.residual_stride;
  float* residual = args.residual;
  const float* weight = args.weight;
  void* out = args.out;
  int64_t residual_stride = args.residual_stride, out_stride = args.out_stride;
  auto cols = static_cast<int32_t>(args.cols);
  float eps = args.eps;
  void* scratch = nullptr;
  void* arguments[] = {&x,          &residual, &weight, &out,     &x_stride, &residual_stride,
                       &out_stride, &cols,     &eps,    &scratch, &scratch};
  cudaLaunchAttribute dependent = {};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(args.num_tokens));
  config.blockDim = dim3(static_cast<unsigned>(kernel.threads));
  config.dynamicSmemBytes = static_cast<size_t>(kernel.shared_bytes);
  config.stream = stream;
  config.attrs = &dependent;
  config.numAttrs = kernel.capability >= 90 ? 1 : 0;  // Hopper and newer have such launches
  (void)cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(loaded->entry), arguments);
  return cudaGetLastError();
}

}  // namespace tokamak::cuda
