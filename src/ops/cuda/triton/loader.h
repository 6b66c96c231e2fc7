// AddRmsNorm by kernels that Triton compiled when this was built (docs/triton.md).
//
// A row has the bits that LaunchAddRmsNorm gives it, so either may compute it. Where Takes says no,
// LaunchAddRmsNorm does: rows of more than 4096 columns, and rows that vectors cannot read.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ops/cuda/kernels.h"
#include "tokamak/status.h"

namespace tokamak::cuda {

// One kernel and how to launch it: a CTA per row.
struct TritonKernel {
  const char* name;       // in `code`
  int capability;         // of the GPUs that can run it: 90 stands for 9.0
  int cols;               // the longest row
  bool x_bf16, out_bf16;  // else f32
  bool adds;              // a residual
  int threads;
  int shared_bytes;       // dynamic
  std::string_view code;  // a cubin
};

// All kernels of this build, in ascending order of cols. None unless it was configured with
// TOKAMAK_TRITON.
std::span<const TritonKernel> TritonKernels();

class TritonNorm {
 public:
  // Loads the kernels for the current device, which has this capability. kUnavailable, with the
  // reason, if there is none for it or if one cannot be loaded. While `lost` is true, nothing is
  // given back to the device.
  static Result<std::unique_ptr<TritonNorm>> Load(std::span<const TritonKernel> kernels,
                                                  int capability, std::shared_ptr<const bool> lost);
  ~TritonNorm();
  TritonNorm(const TritonNorm&) = delete;
  TritonNorm& operator=(const TritonNorm&) = delete;

  bool Takes(const NormArgs& args) const { return Find(args) != nullptr; }
  // Does what LaunchAddRmsNorm does. Requires Takes(args).
  cudaError_t Launch(const NormArgs& args, cudaStream_t stream) const;

 private:
  struct Loaded {
    const TritonKernel* kernel;
    cudaLibrary_t library = nullptr;
    cudaKernel_t entry = nullptr;
  };

  explicit TritonNorm(std::shared_ptr<const bool> lost) : lost_(std::move(lost)) {}
  const Loaded* Find(const NormArgs& args) const;

  std::vector<Loaded> loaded_;
  const std::shared_ptr<const bool> lost_;
};

}  // namespace tokamak::cuda
