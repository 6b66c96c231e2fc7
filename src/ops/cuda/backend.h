// CudaOps: the backend's state and the operations, most of which only check shapes and launch a
// kernel.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "ops/cuda/calls.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/gemm.h"
#include "ops/cuda/kernel_table.h"
#include "ops/cuda/memory.h"
#include "ops/cuda/ranks.h"
#include "ops/cuda/stream.h"
#include "ops/cuda/triton/loader.h"
#include "ops/cuda/weight.h"
#include "ops/ops.h"

namespace tokamak::cuda {

struct AttentionArgs;
struct GroupedLinearArgs;

template <typename T>
T* Data(const Tensor& tensor) {
  return static_cast<T*>(tensor.data);
}

class CudaOps final : public Ops {
 public:
  static Result<std::unique_ptr<Ops>> Make(const CudaOptions& options);
  ~CudaOps() override;

  std::string_view name() const override { return name_; }
  Capabilities capabilities() const override;
  RankInfo rank() const override { return ranks_ ? ranks_->info() : RankInfo(); }
  std::optional<int64_t> FreeDeviceMemory() override;
  Result<Buffer> Allocate(size_t bytes, MemoryKind kind) override;
  Result<std::unique_ptr<PackedWeight>> PackWeight(const WeightSpec& spec) override;
  Result<std::unique_ptr<PackedStack>> PackStack(std::span<const WeightSpec> members) override;
  Result<std::unique_ptr<AttentionPlan>> MakeAttentionPlan(const AttentionShape& given) override;
  Result<std::unique_ptr<Sampler>> MakeSampler(const SamplerShape& shape) override;

  std::unique_ptr<Stream> MakeStream() override;
  Status Synchronize(Stream& stream) override;
  std::unique_ptr<Event> MakeEvent() override;
  std::unique_ptr<Event> MakeTimedEvent() override;
  double SecondsBetween(const Event& from, const Event& to) override;
  void Record(Event& event, Stream& stream) override;
  bool Reached(const Event& event) override;
  Status Await(Event& event) override;
  void WaitFor(Stream& stream, const Event& event) override;
  bool has_graphs() const override { return true; }
  Result<std::unique_ptr<Graph>> Capture(Stream& stream, FunctionRef<void()> run) override;
  void Launch(const Graph& graph, Stream& stream) override;
  void CopyToDevice(void* device, const void* host, size_t bytes, Stream& stream) override;
  void CopyToHost(void* host, const void* device, size_t bytes, Stream& stream) override;

  void Run(const Embed& op, Stream& stream) override;
  void Run(const AddRmsNorm& op, Stream& stream) override;
  void Run(const Linear& op, Stream& stream) override;
  void Run(const GatedActivation& op, Stream& stream) override;
  void Run(const NormAndConvert& op, Stream& stream) override;
  void Run(const GateUp& op, Stream& stream) override;
  void Run(const RopeAndStore& op, Stream& stream) override;
  void Run(const Attention& op, Stream& stream) override;
  void Run(const GatherRows& op, Stream& stream) override;
  void Run(const CopyRows& op, Stream& stream) override;
  void Run(const ScatterElements& op, Stream& stream) override;
  void Run(const CopyRanges& op, Stream& stream) override;
  void Run(const AddResidual& op, Stream& stream) override;
  void Run(const Softcap& op, Stream& stream) override;
  void Run(const AddLayerNorm& op, Stream& stream) override;
  void Run(const Clamp& op, Stream& stream) override;
  void Run(const Activate& op, Stream& stream) override;
  void Run(const Convert& op, Stream& stream) override;
  void Run(const HeadLinear& op, Stream& stream) override;
  void Run(const LatentAttention& op, Stream& stream) override;
  void Run(const RouteTokens& op, Stream& stream) override;
  void Run(const GroupedLinear& op, Stream& stream) override;
  void Run(const GateUpExperts& op, Stream& stream) override;
  void Run(const CombineExperts& op, Stream& stream) override;
  void Run(const CausalConv& op, Stream& stream) override;
  void Run(const GatedDelta& op, Stream& stream) override;
  void Run(const GateOutput& op, Stream& stream) override;
  void Run(const AllReduce& op, Stream& stream) override;
  void Run(const AllGather& op, Stream& stream) override;
  void Run(const Send& op, Stream& stream) override;
  void Run(const Receive& op, Stream& stream) override;

 private:
  CudaOps(const CudaOptions& options, int threads);
  Status Start();
  Status LoadTritonNorm();
  Status StartFlashInfer();
  // Logs a warning if it runs kernels of these families that no GPU of this compute capability has
  // passed.
  void WarnOfUnverified(std::span<const KernelFamily> families) const;
  template <typename Exchange>
  void RunOnRanks(const Exchange& op, Stream& stream);
  // Waits until `query` no longer finds the device busy. False after an error, the timeout, or the
  // end of the ranks' group.
  template <typename Query>
  bool WaitUntilDone(const char* call, const Query& query);
  Status WaitAfterError(Stream& stream);
  // Whether kernels of attention on tensor cores may read keys, or latents, of this type.
  bool MultipliesKeys(DType dtype) const { return dtype != DType::kF8E4M3 || uses_fp8_attention_; }
  // Whether those kernels run for such a cache.
  bool UsesMmaAttention(DType dtype, int32_t head_dim, int32_t block_size) const;
  bool MultipliesLatents(DType dtype) const {
    return dtype != DType::kF8E4M3 || uses_fp8_latent_attention_;
  }
  void RunGroupedGemm(const GroupedLinearArgs& args, Stream& stream);
  // Lets AttendInChunks multiply with the heads' weights, if it may have to.
  Status JoinHeads(CudaStack& stack);
  void AttendInChunks(const LatentAttention& op, AttentionArgs args, Stream& stream);

  CallGuard guard_;
  const bool precise_;
  const KernelChoice kernels_;
  const bool uses_flashinfer_;
  int capability_ = 0;  // 90 stands for 9.0
  bool uses_gated_skinny_gemm_ = false;
  bool uses_mma_attention_ = false;
  bool uses_wide_attention_ = false;  // only beside the other one
  bool uses_fp8_latent_attention_ = false;
  bool uses_fp8_attention_ = false;  // only where it uses kernels for a bf16 cache
  bool uses_latent_attention_ = false;
  bool uses_wide_latent_attention_ = false;  // only beside the other one
  bool uses_expanded_attention_ = false;
  bool uses_grouped_gemm_ = false;
  bool uses_gated_grouped_gemm_ = false;
  bool uses_wide_grouped_gemm_ = false;  // only beside the other ones
  bool has_stacks_ = false;
  bool has_fp8_cache_ = false;
  bool has_output_gates_ = false;
  std::string name_;
  const double step_timeout_seconds_;
  const int64_t stall_event_;
  int64_t num_recorded_ = 0;  // events
  int num_sms_ = 0;
  BlockPool pinned_;
  WeightLoader loader_;
  Gemm gemm_;
  std::unique_ptr<TritonNorm> triton_norm_;  // null: not wanted, or not for this GPU
  std::unique_ptr<GpuRanks> ranks_;          // null: the only rank
};

}  // namespace tokamak::cuda
