// The CUDA backend, which lives in libtokamak_cuda.so: weights in bf16 on the device, activations
// f32 and (into Linear) bf16, sums in f32. A precise backend has no bf16: weights and all
// activations are f32, and products take a plain kernel.
//
// Owner: one thread, for work and for loading. A row's result depends on that row alone (see
// ops/cuda/gemm.h for how Linear keeps that).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "ops/host/communicator.h"
#include "ops/ops.h"
#include "tokamak/option_values.h"

namespace tokamak {

// The optional features that the backend has, and the types of its weights and of its products'
// activations (those of routers are always f32). Constants, because a machine without a GPU plans
// for this backend too.
inline constexpr Capabilities kCudaCapabilities = {Capability::kMla,
                                                   Capability::kNonCausal,
                                                   Capability::kSinks,
                                                   Capability::kAlibi,
                                                   Capability::kAttentionSoftcap,
                                                   Capability::kLogitSoftcap,
                                                   Capability::kClamp,
                                                   Capability::kLayerNorm,
                                                   Capability::kAddResidual,
                                                   Capability::kActivate,
                                                   Capability::kGelu,
                                                   Capability::kQuickGelu,
                                                   Capability::kClampedSwiglu,
                                                   Capability::kEmbeddingScale,
                                                   Capability::kConvert,
                                                   Capability::kMoe,
                                                   Capability::kCombine,
                                                   Capability::kGatedDelta,
                                                   Capability::kGateOutput};
// Whether a KV cache can be in this type.
constexpr bool CudaHoldsKeys(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         dtype == DType::kF8E4M3;
}
constexpr DType CudaWeightType(bool precise) { return precise ? DType::kF32 : DType::kBF16; }
constexpr DType CudaWeightType(bool precise, WeightUse use) {
  return use == WeightUse::kRouter ? DType::kF32 : CudaWeightType(precise);
}

// The backend's name begins with "cuda/sm_90" or the like, or with kCudaEmulated on a CPU
// (ops/cuda/emulation), which is right and slow, for tests, and used only if the device was named.
// It ends in "/precise" for a precise backend, in "/plain" if only the oldest kernels run, in
// "/new" if kernels run that are not verified (NameSuffix in ops/cuda/kernel_table.h), and then in
// "/triton" if a kernel runs that Triton compiled, and in "/flashinfer" if attention is
// FlashInfer's.
inline constexpr std::string_view kCudaEmulated = "cuda/emulated";

// The attention that CudaOptions::flashinfer supports. For messages.
inline constexpr std::string_view kFlashInferSupports =
    "causal attention with heads of 64 or 128 over a bf16 KV cache, without sliding windows, "
    "capped scores, sinks, ALiBi or latents";

// Calls that a backend has made, by what they do. For tests.
struct CudaCallCounts {
  int64_t allocations = 0;       // making memory, streams, events, graphs
  int64_t synchronizations = 0;  // waiting for a whole stream or the device, or copies that do
  int64_t others = 0;
};

struct CudaOptions {
  int device = 0;  // as CUDA numbers them
  // Must be there, this one and those behind it: other ranks will have them.
  int num_devices = 1;
  int threads = 0;  // that read and convert weights; 0: one per physical core
  bool precise = false;
  // ops/cuda/kernel_table.h says which kernels there are, and where they were verified.
  KernelChoice kernels = KernelChoice::kVerified;
  // Attention by FlashInfer's kernels, which do not keep a row's bits independent of its batch
  // (docs/flashinfer.md).
  bool flashinfer = false;
  // How long Await and Synchronize wait until the device counts as lost; 0: for ever.
  double step_timeout_seconds = 0;
  // For tests: the CUDA call with this number fails without being made; 0: none does. If this is 0,
  // the environment's TOKAMAK_CUDA_FAIL_CALL is used.
  int64_t fail_call = 0;
  // For tests: launches a kernel that never ends before it records the event with this number; 0:
  // never. If this is 0, the environment's TOKAMAK_CUDA_STALL_EVENT is used.
  int64_t stall_event = 0;
  CudaCallCounts* counts = nullptr;  // may be null; updated while the backend lives
  // For one of several ranks, each with a device of its own; null for a single one. Their backends
  // exchange values through NCCL. The first exchange connects them, so all ranks must run it at the
  // same time, each on a thread of its own.
  std::shared_ptr<Communicator> communicator = nullptr;
};

// Opens libtokamak_cuda.so and makes a backend. The library is $TOKAMAK_CUDA_LIBRARY if that is
// set, else the one beside the program, in ../lib from there, or where the system looks for
// libraries. kNotFound where there is none; kUnavailable, with the reason, where it cannot be
// opened or there is no driver or no such GPU; kInternal where the library is of another build;
// kInvalidArgument if `options` need what that build left out. With a communicator also
// kUnavailable without NCCL.
Result<std::unique_ptr<Ops>> MakeCudaOps(const CudaOptions& options);

// The same from a given file.
Result<std::unique_ptr<Ops>> MakeCudaOpsFrom(const std::string& library,
                                             const CudaOptions& options);

}  // namespace tokamak
