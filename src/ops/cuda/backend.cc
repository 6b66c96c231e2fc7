#include "ops/cuda/backend.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "ops/cuda/emulated.h"
#include "ops/cuda/grouped_gemm.h"
#include "ops/cuda/kernel_table.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/rank_kernels.h"
#include "ops/cuda/sampler.h"
#include "ops/host/route.h"

namespace tokamak::cuda {
namespace {

// CTAs per SM with which a kernel is launched.
constexpr int kSkinnyCtasPerSm = 2;

PointwiseArgs Pointwise(const Tensor& x, const Tensor& y) {
  return {.x = x.data,
          .y = y.data,
          .x_bf16 = x.dtype == DType::kBF16,
          .y_bf16 = y.dtype == DType::kBF16,
          .num_tokens = x.rows(),
          .cols = x.cols(),
          .x_stride = ElementStride(x),
          .y_stride = ElementStride(y)};
}

NormArgs Norm(const AddRmsNorm& op) {
  // Nothing is added to a residual in bf16. It is only read, so the kernel gets it as x.
  const bool adds = op.residual.dtype == DType::kF32;
  const Tensor* const x = adds ? op.x : &op.residual;
  CHECK(adds || op.x == nullptr);
  return {.x = x != nullptr ? x->data : nullptr,
          .residual = adds ? Data<float>(op.residual) : nullptr,
          .weight = Data<const float>(op.weight),
          .out = op.out.data,
          .x_bf16 = x != nullptr && x->dtype == DType::kBF16,
          .out_bf16 = op.out.dtype == DType::kBF16,
          .num_tokens = op.residual.rows(),
          .cols = op.residual.cols(),
          .x_stride = x != nullptr ? ElementStride(*x) : 0,
          .residual_stride = adds ? op.residual.float_stride() : 0,
          .out_stride = ElementStride(op.out),
          .eps = op.eps};
}

GroupedLinearArgs Grouped(const GroupedLinear& op) {
  const auto& stack = static_cast<const CudaStack&>(*op.weights);
  CHECK(op.x.dtype == stack.activation() && op.x.cols() == stack.cols() &&
        op.out.cols() == stack.rows() && op.out.dtype == stack.output());
  return {.x = op.x.data,
          .weights = stack.data(),
          .offsets = Data<const int32_t>(op.offsets),
          .bias = Data<const float>(op.bias),
          .out = op.out.data,
          .num_rows = op.x.rows(),
          .rows = stack.rows(),
          .cols = stack.cols(),
          .x_stride = ElementStride(op.x),
          .out_stride = ElementStride(op.out),
          .groups = static_cast<int32_t>(stack.size()),
          .bf16 = stack.activation() == DType::kBF16,
          .out_bf16 = stack.output() == DType::kBF16};
}

const CudaWeight& Unwrap(const PackedWeight* weight) {
  return static_cast<const CudaWeight&>(*weight);
}

Status NoDevice(std::string_view reason) { return Unavailable("no usable NVIDIA GPU: {}", reason); }

}  // namespace

CudaOps::CudaOps(const CudaOptions& options, int threads)
    : guard_(options),
      precise_(options.precise),
      kernels_(options.precise ? KernelChoice::kPlain : options.kernels),
      uses_flashinfer_(options.flashinfer),
      step_timeout_seconds_(options.step_timeout_seconds),
      stall_event_(options.stall_event),
      pinned_(guard_, MemoryKind::kHostPinned),
      loader_(guard_, threads, options.precise),
      gemm_(guard_) {}

CudaOps::~CudaOps() = default;

Result<std::unique_ptr<Ops>> CudaOps::Make(const CudaOptions& options) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    (void)cudaGetLastError();
    int driver = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) {
      return NoDevice("no NVIDIA driver is installed");
    }
    return NoDevice(cudaGetErrorString(error));
  }
  const int last = options.device + options.num_devices - 1;
  if (options.num_devices > 1 && options.device >= 0 && last >= count) {
    const RankInfo place = options.communicator ? options.communicator->info() : RankInfo();
    const int rank = place.stage * place.size + place.rank;
    return NoDevice(fmt::format(
        "devices {} to {} were asked for, one for each rank; {} are visible, so rank {} has none",
        options.device, last, count, rank + std::max(0, count - options.device)));
  }
  if (options.device < 0 || options.device >= count) {
    return NoDevice(fmt::format("device {} was asked for, {} are visible", options.device, count));
  }
  const int threads = options.threads > 0 ? options.threads : ThreadPool::PhysicalCores();
  std::unique_ptr<CudaOps> ops(new CudaOps(options, threads));
  RETURN_IF_ERROR(ops->Start());
  if (options.communicator) {
    ASSIGN_OR_RETURN(ops->ranks_, GpuRanks::Make(ops->guard_, options.communicator));
  }
  return std::unique_ptr<Ops>(std::move(ops));
}

Status CudaOps::Start() {
  int major = 0, minor = 0;
  const int device = guard_.device();
  RETURN_IF_ERROR(
      CUDA_TRY(guard_, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device)));
  RETURN_IF_ERROR(
      CUDA_TRY(guard_, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device)));
  RETURN_IF_ERROR(
      CUDA_TRY(guard_, cudaDeviceGetAttribute(&num_sms_, cudaDevAttrMultiProcessorCount, device)));
  name_ = kIsEmulated ? std::string(kCudaEmulated) : fmt::format("cuda/sm_{}{}", major, minor);
  capability_ = 10 * major + minor;
  name_ += precise_ ? "/precise" : NameSuffix(kKernelFamilies, kernels_, capability_);
  const bool uses_skinny_gemm = UsesKernels(kSkinnyGemm, kernels_, capability_);
  uses_gated_skinny_gemm_ = UsesKernels(kGatedSkinnyGemm, kernels_, capability_);
  uses_mma_attention_ = UsesKernels(kMmaAttention, kernels_, capability_);
  uses_wide_attention_ = uses_mma_attention_ && UsesKernels(kWideAttention, kernels_, capability_);
  uses_fp8_attention_ = UsesKernels(kFp8Attention, kernels_, capability_);
  uses_fp8_latent_attention_ = UsesKernels(kFp8LatentAttention, kernels_, capability_);
  uses_latent_attention_ = UsesKernels(kLatentAttention, kernels_, capability_);
  uses_wide_latent_attention_ =
      uses_latent_attention_ && UsesKernels(kWideLatentAttention, kernels_, capability_);
  uses_expanded_attention_ =
      !uses_flashinfer_ && UsesKernels(kExpandedAttention, kernels_, capability_);
  uses_grouped_gemm_ = UsesKernels(kGroupedGemm, kernels_, capability_);
  uses_gated_grouped_gemm_ = UsesKernels(kGatedGroupedGemm, kernels_, capability_);
  uses_wide_grouped_gemm_ = UsesKernels(kWideGroupedGemm, kernels_, capability_);
  guard_.SelectDevice();
  if (const cudaError_t error = CheckDeviceCode(); error != cudaSuccess) {
    (void)cudaGetLastError();
    return NoDevice(
        fmt::format("device {} has compute capability {}.{}, for which this build has "
                    "no code ({}); see TOKAMAK_CUDA_ARCHITECTURES",
                    device, major, minor, cudaGetErrorString(error)));
  }
  if (kernels_ == KernelChoice::kTriton) RETURN_IF_ERROR(LoadTritonNorm());
  if (uses_flashinfer_) RETURN_IF_ERROR(StartFlashInfer());
  if (!precise_) {
    RETURN_IF_ERROR(
        gemm_.Start(uses_skinny_gemm ? kSkinnyCtasPerSm * num_sms_ : 0, FormFor(capability_)));
  }
  WarnOfUnverified(kDenseFamilies);
  // Enough for the small uploads and the results of a few steps in flight.
  return pinned_.Reserve(16, 64 << 10);
}

Status CudaOps::LoadTritonNorm() {
  if (TritonKernels().empty()) {
    return InvalidArgument(
        "kernels=triton: this build of the CUDA backend has no kernels from Triton; configure it "
        "with -DTOKAMAK_TRITON=1");
  }
  auto loaded = TritonNorm::Load(TritonKernels(), capability_, guard_.lost());
  if (!loaded.ok()) {
    LogWarning("{}: {}; the backend's own kernels run instead", name_, loaded.status().message());
    return Status();
  }
  triton_norm_ = *std::move(loaded);
  name_ += "/triton";
  WarnOfUnverified({&kTritonNorm, 1});
  return Status();
}

void CudaOps::WarnOfUnverified(std::span<const KernelFamily> families) const {
  std::string names;
  for (const KernelFamily& family : families) {
    if (!UsesKernels(family, kernels_, capability_) || family.IsVerified(capability_)) continue;
    names += (names.empty() ? "" : ", ") + std::string(family.name);
  }
  if (names.empty()) return;
  LogWarning(
      "{}: no GPU of this compute capability has passed the tests of {} yet; docs/gpu.md says how "
      "to run them",
      name_, names);
}

std::optional<int64_t> CudaOps::FreeDeviceMemory() {
  size_t free = 0, total = 0;
  if (!CUDA_RUN(guard_, cudaMemGetInfo(&free, &total))) return 0;
  return static_cast<int64_t>(free);
}

Result<Buffer> CudaOps::Allocate(size_t bytes, MemoryKind kind) {
  return AllocateMemory(guard_, bytes, kind);
}

Result<std::unique_ptr<PackedWeight>> CudaOps::PackWeight(const WeightSpec& spec) {
  ASSIGN_OR_RETURN(std::unique_ptr<CudaWeight> weight, loader_.Load(spec));
  if (spec.use != WeightUse::kEmbedding && weight->activation() == DType::kBF16) {
    ASSIGN_OR_RETURN(weight->recipe, gemm_.MakeRecipe(*weight));
  }
  return std::unique_ptr<PackedWeight>(std::move(weight));
}

Result<std::unique_ptr<PackedStack>> CudaOps::PackStack(std::span<const WeightSpec> members) {
  if (!has_stacks_) WarnOfUnverified(kStackFamilies);
  has_stacks_ = true;
  ASSIGN_OR_RETURN(std::unique_ptr<CudaStack> stack, loader_.LoadStack(members));
  if (members.front().use == WeightUse::kHeads) RETURN_IF_ERROR(JoinHeads(*stack));
  return std::unique_ptr<PackedStack>(std::move(stack));
}

Result<std::unique_ptr<Sampler>> CudaOps::MakeSampler(const SamplerShape& shape) {
  ASSIGN_OR_RETURN(std::unique_ptr<CudaSampler> sampler, CudaSampler::Make(shape, guard_, pinned_));
  return std::unique_ptr<Sampler>(std::move(sampler));
}

std::unique_ptr<Stream> CudaOps::MakeStream() {
  return std::make_unique<CudaStream>(guard_, pinned_);
}

// After an error nothing more is enqueued, but earlier work may still use memory that the caller is
// about to free. Gives the device a moment to finish; if it needs longer, it is lost. The moment is
// short because the engine resets twice before it gives up, and the process must end within 10 s.
Status CudaOps::WaitAfterError(Stream& stream) {
  constexpr std::chrono::seconds kPatience(2);
  cudaStream_t handle = Handle(stream);
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  const auto is_busy = [&] {
    return !*guard_.lost() && handle != nullptr && cudaStreamQuery(handle) == cudaErrorNotReady;
  };
  while (is_busy()) {
    if (std::chrono::steady_clock::now() > give_up) guard_.Lose(guard_.status());
  }
  static_cast<CudaStream&>(stream).completions()->Abandon();
  return guard_.status();
}

template <typename Query>
bool CudaOps::WaitUntilDone(const char* call, const Query& query) {
  const auto start = std::chrono::steady_clock::now();
  bool late = false;
  const bool made = guard_.Run(call, [&] {
    for (;;) {
      const cudaError_t result = query();
      // Exchanges that were ended count as done, too.
      if (ranks_ && ranks_->HasEnded()) return cudaSuccess;
      if (result != cudaErrorNotReady) return result;
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
      late = step_timeout_seconds_ > 0 && waited.count() > step_timeout_seconds_;
      if (late) return cudaSuccess;
      std::this_thread::yield();
    }
  });
  if (!late) return made && guard_.ok();
  const Status status =
      Internal("CUDA: the device did not finish its work within {} s (step_timeout_seconds)",
               step_timeout_seconds_);
  if (ranks_) {
    ranks_->End(status);  // it may wait for nothing but another rank
  } else {
    guard_.Lose(status);
  }
  return false;
}

Status CudaOps::Synchronize(Stream& stream) {
  const auto query = [handle = Handle(stream)] { return cudaStreamQuery(handle); };
  if (!guard_.ok() || !WaitUntilDone("cudaStreamQuery", query)) {
    return WaitAfterError(stream);
  }
  CompletionQueue& completions = *static_cast<CudaStream&>(stream).completions();
  completions.Reached(completions.added());
  return Status();
}

std::unique_ptr<Event> CudaOps::MakeEvent() { return std::make_unique<CudaEvent>(guard_); }

std::unique_ptr<Event> CudaOps::MakeTimedEvent() {
  return std::make_unique<CudaEvent>(guard_, /*timed=*/true);
}

double CudaOps::SecondsBetween(const Event& from, const Event& to) {
  float milliseconds = 0;
  CUDA_RUN(guard_, cudaEventElapsedTime(&milliseconds, static_cast<const CudaEvent&>(from).handle(),
                                        static_cast<const CudaEvent&>(to).handle()));
  return milliseconds / 1e3;
}

void CudaOps::Record(Event& event, Stream& stream) {
  auto& cuda_event = static_cast<CudaEvent&>(event);
  if (++num_recorded_ == stall_event_) CUDA_RUN(guard_, LaunchStall(Handle(stream)));
  if (CUDA_RUN(guard_, cudaEventRecord(cuda_event.handle(), Handle(stream)))) {
    cuda_event.NoteRecorded(static_cast<CudaStream&>(stream));
  }
}

// After an error every event counts as reached, so that the caller calls Await, which reports it.
bool CudaOps::Reached(const Event& event) {
  if (!guard_.ok()) return true;
  const auto& cuda_event = static_cast<const CudaEvent&>(event);
  cudaError_t result = cudaSuccess;
  const bool made = guard_.Run("cudaEventQuery", [&] {
    result = cudaEventQuery(cuda_event.handle());
    return result == cudaErrorNotReady ? cudaSuccess : result;
  });
  if (!made) return true;
  if (ranks_ && ranks_->HasEnded()) return true;
  if (result == cudaErrorNotReady) return false;
  cuda_event.NoteReached();
  return true;
}

Status CudaOps::Await(Event& event) {
  const auto& cuda_event = static_cast<const CudaEvent&>(event);
  const auto query = [handle = cuda_event.handle()] { return cudaEventQuery(handle); };
  if (!guard_.ok() || !WaitUntilDone("cudaEventQuery", query)) return guard_.status();
  cuda_event.NoteReached();
  return Status();
}

void CudaOps::WaitFor(Stream& stream, const Event& event) {
  const auto& cuda_event = static_cast<const CudaEvent&>(event);
  CUDA_RUN(guard_, cudaStreamWaitEvent(Handle(stream), cuda_event.handle(), 0));
}

Result<std::unique_ptr<Graph>> CudaOps::Capture(Stream& stream, FunctionRef<void()> run) {
  ASSIGN_OR_RETURN(std::unique_ptr<Graph> graph, CaptureGraph(guard_, Handle(stream), run));
  return graph;
}

void CudaOps::Launch(const Graph& graph, Stream& stream) {
  CUDA_RUN(guard_, cudaGraphLaunch(static_cast<const CudaGraph&>(graph).handle(), Handle(stream)));
}

void CudaOps::CopyToDevice(void* device, const void* host, size_t bytes, Stream& stream) {
  if (bytes == 0) return;
  CUDA_RUN(guard_, cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, Handle(stream)));
}

void CudaOps::CopyToHost(void* host, const void* device, size_t bytes, Stream& stream) {
  if (bytes == 0) return;
  CUDA_RUN(guard_, cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, Handle(stream)));
}

void CudaOps::Run(const Embed& op, Stream& stream) {
  const CudaWeight& table = Unwrap(op.table);
  const EmbedArgs args = {.ids = Data<const int32_t>(op.ids),
                          .table = table.data(),
                          .out = Data<float>(op.out),
                          .num_tokens = op.out.rows(),
                          .cols = table.cols(),
                          .out_stride = op.out.float_stride(),
                          .table_bf16 = table.activation() == DType::kBF16,
                          .scale = op.scale};
  const EmbedShardArgs shard = {.embed = args, .first_id = op.first_id, .num_rows = table.rows()};
  CUDA_RUN(guard_, LaunchEmbedShard(shard, Handle(stream)));
}

void CudaOps::Run(const AddRmsNorm& op, Stream& stream) {
  const NormArgs args = Norm(op);
  if (triton_norm_ != nullptr && triton_norm_->Takes(args)) {
    CUDA_RUN(guard_, triton_norm_->Launch(args, Handle(stream)));
  } else {
    CUDA_RUN(guard_, LaunchAddRmsNorm(args, Handle(stream)));
  }
}

void CudaOps::Run(const NormAndConvert& op, Stream& stream) {
  const Tensor& copy = op.convert.out;
  if (op.norm.out.dtype != DType::kF32 || copy.dtype != DType::kBF16) return Ops::Run(op, stream);
  NormArgs args = Norm(op.norm);
  args.copy = copy.data;
  args.copy_stride = ElementStride(copy);
  CUDA_RUN(guard_, LaunchAddRmsNorm(args, Handle(stream)));
}

void CudaOps::Run(const AddLayerNorm& op, Stream& stream) {
  const LayerNormArgs args = {.x = op.x != nullptr ? op.x->data : nullptr,
                              .residual = Data<float>(op.residual),
                              .weight = Data<const float>(op.weight),
                              .bias = Data<const float>(op.bias),
                              .out = op.out.data,
                              .x_bf16 = op.x != nullptr && op.x->dtype == DType::kBF16,
                              .out_bf16 = op.out.dtype == DType::kBF16,
                              .num_tokens = op.residual.rows(),
                              .cols = op.residual.cols(),
                              .x_stride = op.x != nullptr ? ElementStride(*op.x) : 0,
                              .residual_stride = op.residual.float_stride(),
                              .out_stride = ElementStride(op.out),
                              .eps = op.eps};
  CHECK(op.residual.dtype == DType::kF32);
  CUDA_RUN(guard_, LaunchAddLayerNorm(args, Handle(stream)));
}

void CudaOps::Run(const AddResidual& op, Stream& stream) {
  CHECK(op.residual.dtype == DType::kF32);
  PointwiseArgs args = Pointwise(op.x, op.residual);
  args.scale = op.scale;
  CUDA_RUN(guard_, LaunchAddResidual(args, Handle(stream)));
}

void CudaOps::Run(const Softcap& op, Stream& stream) {
  CHECK(op.x.dtype == DType::kF32);
  PointwiseArgs args = Pointwise(op.x, op.x);
  args.limit = op.cap;
  CUDA_RUN(guard_, LaunchSoftcap(args, Handle(stream)));
}

void CudaOps::Run(const Clamp& op, Stream& stream) {
  PointwiseArgs args = Pointwise(op.x, op.x);
  args.limit = op.limit;
  CUDA_RUN(guard_, LaunchClamp(args, Handle(stream)));
}

void CudaOps::Run(const Activate& op, Stream& stream) {
  PointwiseArgs args = Pointwise(op.x, op.out);
  args.activation = op.activation;
  CUDA_RUN(guard_, LaunchActivate(args, Handle(stream)));
}

void CudaOps::Run(const Convert& op, Stream& stream) {
  CHECK(op.x.dtype == DType::kF32);
  CUDA_RUN(guard_, LaunchConvert(Pointwise(op.x, op.out), Handle(stream)));
}

void CudaOps::Run(const Linear& op, Stream& stream) {
  gemm_.Run(op, Unwrap(op.weight), Handle(stream));
}

void CudaOps::Run(const RouteTokens& op, Stream& stream) {
  const int64_t pair_bytes = op.router.top_k * int64_t{sizeof(int32_t)};
  CHECK(op.router.num_experts <= kMaxExperts && op.experts.row_stride == pair_bytes &&
        op.weights.row_stride == pair_bytes && op.rows.row_stride == pair_bytes);
  const RouteArgs args = {.logits = Data<const float>(op.logits),
                          .bias = Data<const float>(op.bias),
                          .router = op.router,
                          .experts = Data<int32_t>(op.experts),
                          .weights = Data<float>(op.weights),
                          .tokens = Data<int32_t>(op.tokens),
                          .rows = Data<int32_t>(op.rows),
                          .offsets = Data<int32_t>(op.offsets),
                          .num_tokens = op.logits.rows(),
                          .logits_stride = op.logits.float_stride()};
  CUDA_RUN(guard_, LaunchRoute(args, Handle(stream)));
}

void CudaOps::RunGroupedGemm(const GroupedLinearArgs& args, Stream& stream) {
  const bool can_be_wide = uses_wide_grouped_gemm_ && FitsWideGroupedGemm(args);
  const GroupedTileShape tile = ChooseGroupedTile(args.num_rows, args.groups, can_be_wide);
  CUDA_RUN(guard_, LaunchGroupedGemm(args, tile, num_sms_ * GroupedCtasPerSm(tile),
                                     FormFor(capability_), Handle(stream)));
}

void CudaOps::Run(const GroupedLinear& op, Stream& stream) {
  const GroupedLinearArgs args = Grouped(op);
  if (!uses_grouped_gemm_ || !FitsGroupedGemm(args)) {
    CUDA_RUN(guard_, LaunchPlainGroupedLinear(args, Handle(stream)));
    return;
  }
  RunGroupedGemm(args, stream);
}

void CudaOps::Run(const GateUpExperts& op, Stream& stream) {
  GroupedLinearArgs args = Grouped(op.linear);
  args.gated = true;
  args.out = op.gate.out.data;
  args.out_stride = ElementStride(op.gate.out);
  // All rows of one token are equal, and each expert has at most one of them.
  const Tensor& source = op.gather.source;
  args.one_row = source.rows() == 1;
  if (args.one_row) {
    args.x = source.data;
    args.x_stride = ElementStride(source);
  }
  CHECK(op.rows.row_stride == op.rows.cols() * int64_t{sizeof(int32_t)});
  const SpreadArgs spread = {
      .source = Data<const std::byte>(source),
      .rows = Data<const int32_t>(op.rows),
      .out = Data<std::byte>(op.gather.out),
      .num_rows = source.rows(),
      .row_bytes = static_cast<int64_t>(RowBytes(source.dtype, source.cols())),
      .source_stride = source.row_stride,
      .out_stride = op.gather.out.row_stride,
      .top_k = static_cast<int32_t>(op.rows.cols())};
  if (!uses_gated_grouped_gemm_ || op.gate.activation != Activation::kSilu ||
      op.gate.out.dtype != DType::kBF16 || !FitsGroupedGemm(args) || !FitsSpread(spread)) {
    return Ops::Run(op, stream);
  }
  if (!args.one_row) CUDA_RUN(guard_, LaunchSpread(spread, Handle(stream)));
  RunGroupedGemm(args, stream);
}

void CudaOps::Run(const CombineExperts& op, Stream& stream) {
  const int64_t pair_bytes = op.rows.cols() * int64_t{sizeof(int32_t)};
  CHECK(op.rows.row_stride == pair_bytes && op.weights.row_stride == pair_bytes);
  const auto stride = [](const Tensor& tensor) {
    return tensor.empty() ? 0 : ElementStride(tensor);
  };
  const CombineArgs args = {.x = Data<const float>(op.x),
                            .rows = Data<const int32_t>(op.rows),
                            .weights = Data<const float>(op.weights),
                            .shared = op.shared.data,
                            .shared_gate = Data<const float>(op.shared_gate),
                            .out = Data<float>(op.out),
                            .num_tokens = op.out.rows(),
                            .cols = op.out.cols(),
                            .x_stride = op.x.float_stride(),
                            .shared_stride = stride(op.shared),
                            .shared_gate_stride = stride(op.shared_gate),
                            .out_stride = op.out.float_stride(),
                            .top_k = static_cast<int32_t>(op.rows.cols()),
                            .shared_bf16 = op.shared.dtype == DType::kBF16};
  CUDA_RUN(guard_, LaunchCombine(args, Handle(stream)));
}

void CudaOps::Run(const GatedActivation& op, Stream& stream) {
  const GateArgs args = {.gate_up = op.gate_up.data,
                         .out = op.out.data,
                         .in_bf16 = op.gate_up.dtype == DType::kBF16,
                         .out_bf16 = op.out.dtype == DType::kBF16,
                         .activation = op.activation,
                         .num_tokens = op.out.rows(),
                         .width = op.out.cols(),
                         .in_stride = ElementStride(op.gate_up),
                         .out_stride = ElementStride(op.out),
                         .limit = op.limit,
                         .alpha = op.alpha};
  CUDA_RUN(guard_, LaunchGate(args, Handle(stream)));
}

void CudaOps::Run(const GateUp& op, Stream& stream) {
  const CudaWeight& weight = Unwrap(op.linear.weight);
  if (uses_gated_skinny_gemm_ && gemm_.RunGateUp(op, weight, Handle(stream))) return;
  Ops::Run(op, stream);
}

void CudaOps::Run(const RopeAndStore& op, Stream& stream) {
  RopeArgs args = {};
  const bool has_values = !op.cache.values_in_keys;
  CHECK(op.q.dtype == op.k.dtype && (!has_values || op.q.dtype == op.v.dtype));
  args.q = op.q.data;
  args.k = op.k.data;
  args.v = has_values ? op.v.data : nullptr;
  args.bf16 = op.q.dtype == DType::kBF16;
  args.positions = Data<const int32_t>(op.positions);
  args.slot_mapping = Data<const int64_t>(op.slot_mapping);
  args.q_norm = op.q_norm != nullptr ? Data<const float>(*op.q_norm) : nullptr;
  args.k_norm = op.k_norm != nullptr ? Data<const float>(*op.k_norm) : nullptr;
  args.norm_eps = op.norm_eps;
  if (op.rope != nullptr) {
    args.cos_sin = Data<const float>(op.rope->cos_sin);
    args.cos_sin_stride = op.rope->cos_sin.float_stride();
    args.rotary_dim = op.rope->rotary_dim;
    args.half_split = op.rope->style == RopeStyle::kHalfSplit;
  }
  args.num_tokens = op.q.rows();
  args.q_stride = ElementStride(op.q);
  args.k_stride = ElementStride(op.k);
  args.v_stride = has_values ? ElementStride(op.v) : 0;
  args.num_heads = static_cast<int32_t>(op.q.cols() / op.QueryDim());
  args.q_head_dim = op.QueryDim();
  args.cache = op.cache;
  CUDA_RUN(guard_, LaunchRopeAndStore(args, Handle(stream)));
}

}  // namespace tokamak::cuda
