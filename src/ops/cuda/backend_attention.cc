// CudaOps: attention and the operations of latent attention.
#include <algorithm>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "ops/cuda/attention_plan.h"
#include "ops/cuda/backend.h"
#include "ops/cuda/expanded_attention.h"
#include "ops/cuda/flashinfer/plan.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/latent_attention.h"
#include "ops/cuda/mma_attention.h"

namespace tokamak::cuda {
namespace {

// CTAs per SM with which each kernel is launched.
constexpr int kPlainCtasPerSm = 4;
constexpr int kMmaCtasPerSm = 2;
constexpr int kWideCtasPerSm = 1;
constexpr int kLatentCtasPerSm = 1;
constexpr int kFlashInferCtasPerSm = 2;

AttentionArgs MakeAttentionArgs(const CudaAttentionPlan& plan, const Tensor& q,
                                const KvLayerView& cache, float scale, const Tensor& out) {
  AttentionArgs args = {};
  args.q = q.data;
  args.q_bf16 = q.dtype == DType::kBF16;
  args.out = out.data;
  args.out_bf16 = out.dtype == DType::kBF16;
  args.q_stride = ElementStride(q);
  args.out_stride = ElementStride(out);
  args.scale = scale;
  args.group = plan.shape().num_heads / plan.shape().num_kv_heads;
  args.window = plan.shape().window;
  args.cache = cache;
  args.plan = plan.device();
  args.table_rows = Data<const int32_t>(plan.table_rows());
  args.block_tables = Data<const int32_t>(plan.block_tables());
  args.table_stride = plan.block_tables().row_stride / static_cast<int64_t>(sizeof(int32_t));
  args.partials = plan.partials();
  args.counters = plan.counters();
  args.totals = plan.totals();
  return args;
}

HeadLinearArgs::Columns ToColumns(const HeadColumns& x) {
  if (x.cols == 0) return {};
  return {.data = x.tensor.data,
          .bf16 = x.tensor.dtype == DType::kBF16,
          .stride = ElementStride(x.tensor),
          .first = x.first,
          .step = x.step,
          .cols = x.cols};
}

}  // namespace

Status CudaOps::StartFlashInfer() {
  if (!HasFlashInfer()) {
    return InvalidArgument(
        "attention=flashinfer: this build of the CUDA backend has no kernels of FlashInfer; "
        "configure it with -DTOKAMAK_FLASHINFER=1");
  }
  if (precise_) {
    return InvalidArgument("attention=flashinfer: supports {}, which precise does not have",
                           kFlashInferSupports);
  }
  name_ += "/flashinfer";
  LogWarning(
      "{}: attention is computed by FlashInfer's kernels, so a request's answer may depend on what "
      "shares its batch",
      name_);
  return Status();
}

Capabilities CudaOps::capabilities() const {
  Capabilities all = kCudaCapabilities;
  if (uses_flashinfer_) {
    all = all - Capabilities{Capability::kMla, Capability::kNonCausal, Capability::kSinks,
                             Capability::kAlibi, Capability::kAttentionSoftcap};
  }
  if (uses_expanded_attention_) all |= Capability::kLatentScratch;
  return all;
}

bool CudaOps::UsesMmaAttention(DType dtype, int32_t head_dim, int32_t block_size) const {
  const bool is_usual = head_dim == 64 || head_dim == 128;
  return uses_mma_attention_ && MultipliesKeys(dtype) &&
         (is_usual || UsesKernels(kMoreHeads, kernels_, capability_)) &&
         HasMmaAttention(dtype, head_dim, block_size);
}

Result<std::unique_ptr<AttentionPlan>> CudaOps::MakeAttentionPlan(const AttentionShape& given) {
  AttentionShape shape = given;
  if (!uses_expanded_attention_ || !HasExpandedAttention(shape)) {
    // The plain kernel decompresses slowly: models that can absorb do so for all rows.
    if (shape.expansion.min_queries > 1) shape.expansion = {};
    shape.expansion.chunk_keys = 0;
  }
  if (shape.kv_dtype == DType::kF8E4M3 && !std::exchange(has_fp8_cache_, true)) {
    WarnOfUnverified(kFp8Families);
  }
  if (uses_flashinfer_) {
    ASSIGN_OR_RETURN(std::unique_ptr<FlashInferPlan> plan,
                     FlashInferPlan::Make(shape, num_sms_ * kFlashInferCtasPerSm, guard_, pinned_));
    return std::unique_ptr<AttentionPlan>(std::move(plan));
  }
  const bool by_mma = UsesMmaAttention(shape.kv_dtype, shape.head_dim, shape.block_size);
  const bool is_latent =
      uses_latent_attention_ && MultipliesLatents(shape.kv_dtype) && HasLatentAttention(shape);
  const int narrow_per_sm = is_latent ? kLatentCtasPerSm : by_mma ? kMmaCtasPerSm : kPlainCtasPerSm;
  const bool is_wide = by_mma && uses_wide_attention_ && HasWideAttention(shape.head_dim);
  AttentionCtas ctas = {.narrow = num_sms_ * narrow_per_sm,
                        .wide = is_wide ? num_sms_ * kWideCtasPerSm : 0};
  if (is_latent && uses_wide_latent_attention_) {
    ctas.wide = num_sms_ * kWideCtasPerSm;
    ctas.wide_rows = kWideLatentRows;
    ctas.wide_bytes = kWideLatentBytes;
  }
  ASSIGN_OR_RETURN(std::unique_ptr<CudaAttentionPlan> plan,
                   CudaAttentionPlan::Make(shape, ctas, guard_, pinned_));
  return std::unique_ptr<AttentionPlan>(std::move(plan));
}

void CudaOps::Run(const Attention& op, Stream& stream) {
  if (op.q.rows() == 0) return;
  if (uses_flashinfer_) return static_cast<const FlashInferPlan&>(*op.plan).Run(op, stream);
  const auto& plan = static_cast<const CudaAttentionPlan&>(*op.plan);
  CHECK(op.cache.head_dim == plan.shape().head_dim &&
        op.cache.ValueDim() == plan.shape().ValueDim() &&
        op.cache.num_kv_heads == plan.shape().num_kv_heads &&
        op.cache.block_size == plan.shape().block_size);
  AttentionArgs args = MakeAttentionArgs(plan, op.q, op.cache, op.scale, op.out);
  args.lse = op.output_lse.empty() ? nullptr : Data<float>(op.output_lse);
  args.lse_stride = op.output_lse.empty() ? 0 : op.output_lse.float_stride();
  args.softcap = op.softcap;
  args.sinks = Data<const float>(op.sinks);
  args.slopes = Data<const float>(op.slopes);
  if (uses_latent_attention_ && MultipliesLatents(op.cache.dtype) &&
      LatentAttentionReads(op.cache) && !args.EditsScores()) {
    if (plan.ctas() > 0) {
      const auto launch = FormFor(capability_) == KernelForm::kHopper
                              ? &LaunchLatentAttention
                              : &LaunchAmpereLatentAttention;
      CUDA_RUN(guard_, launch(args, plan.ctas(), Handle(stream)));
    }
    if (plan.wide_ctas() > 0) {
      CUDA_RUN(guard_, LaunchWideLatentAttention(args, plan.wide_ctas(), Handle(stream)));
    }
    return;
  }
  if (!UsesMmaAttention(op.cache.dtype, op.cache.head_dim, op.cache.block_size) ||
      !MmaAttentionReads(op.cache) || args.slopes != nullptr ||
      (args.EditsScores() && !UsesKernels(kEditedScores, kernels_, capability_))) {
    const int64_t ctas = CeilDiv(int64_t{num_sms_} * kPlainCtasPerSm, op.cache.num_kv_heads);
    CUDA_RUN(guard_, LaunchAttention(args, static_cast<int>(ctas), Handle(stream)));
    return;
  }
  if (plan.ctas() > 0) {
    const auto launch =
        FormFor(capability_) == KernelForm::kHopper ? &LaunchMmaAttention : &LaunchAmpereAttention;
    CUDA_RUN(guard_, launch(args, plan.ctas(), Handle(stream)));
  }
  if (plan.wide_ctas() > 0) {
    CUDA_RUN(guard_, LaunchWideAttention(args, plan.wide_ctas(), Handle(stream)));
  }
}

void CudaOps::Run(const HeadLinear& op, Stream& stream) {
  const auto& weights = static_cast<const CudaStack&>(*op.weights);
  CHECK(op.x.cols == weights.cols() &&
        op.out.cols() == weights.size() * (op.copied.cols + weights.rows()));
  const HeadLinearArgs args = {.x = ToColumns(op.x),
                               .copied = ToColumns(op.copied),
                               .weights = weights.data(),
                               .out = op.out.data,
                               .weights_bf16 = weights.activation() == DType::kBF16,
                               .out_bf16 = op.out.dtype == DType::kBF16,
                               .num_tokens = op.out.rows(),
                               .num_heads = weights.size(),
                               .rows = weights.rows(),
                               .out_stride = ElementStride(op.out)};
  if (uses_latent_attention_ && HasMmaHeadLinear(args)) {
    CUDA_RUN(guard_, LaunchMmaHeadLinear(args, Handle(stream)));
  } else {
    CUDA_RUN(guard_, LaunchPlainHeadLinear(args, Handle(stream)));
  }
}

void CudaOps::Run(const LatentAttention& op, Stream& stream) {
  const auto& plan = static_cast<const CudaAttentionPlan&>(*op.plan);
  if (op.q.rows() == 0 || plan.shape().expansion.min_queries == 0) return;
  const auto& w_uk = static_cast<const CudaStack&>(*op.w_uk);
  const auto& w_uv = static_cast<const CudaStack&>(*op.w_uv);
  CHECK(op.cache.values_in_keys && op.cache.head_dim == plan.shape().head_dim &&
        w_uk.rows() == plan.shape().expansion.nope_dim &&
        w_uv.rows() == plan.shape().expansion.value_dim && w_uk.cols() == op.cache.ValueDim());
  AttentionArgs args = MakeAttentionArgs(plan, op.q, op.cache, op.scale, op.out);
  args.group = 1;
  args.w_uk = w_uk.data();
  args.w_uv = w_uv.data();
  args.weights_bf16 = w_uk.activation() == DType::kBF16;
  args.num_heads = static_cast<int32_t>(w_uk.size());
  args.nope_dim = static_cast<int32_t>(w_uk.rows());
  args.expanded_value_dim = static_cast<int32_t>(w_uv.rows());
  if (plan.shape().expansion.chunk_keys > 0) return AttendInChunks(op, args, stream);
  CUDA_RUN(guard_, LaunchAttention(args, plan.expanded_ctas(), Handle(stream)));
}

Status CudaOps::JoinHeads(CudaStack& stack) {
  const bool is_expanded = stack.rows() == kExpandedNopeDim || stack.rows() == kExpandedValueDim;
  if (!uses_expanded_attention_ || !is_expanded) return Status();
  ASSIGN_OR_RETURN(stack.joined, gemm_.Join(stack));
  return Status();
}

// Keys and values of a chunk are plain products of its entries with the heads' stacked weights.
void CudaOps::AttendInChunks(const LatentAttention& op, AttentionArgs args, Stream& stream) {
  const auto& plan = static_cast<const CudaAttentionPlan&>(*op.plan);
  const auto& w_uk = *static_cast<const CudaStack&>(*op.w_uk).joined;
  const auto& w_uv = *static_cast<const CudaStack&>(*op.w_uv).joined;
  const int64_t max_rows = plan.shape().expansion.chunk_keys, heads = args.num_heads;
  const int32_t entry_dim = op.cache.head_dim;
  CHECK(op.scratch.cols() >=
        LatentScratchBytes(plan.shape().expansion, entry_dim, heads, op.q.rows()));
  auto* const entries = static_cast<uint16_t*>(op.scratch.data);
  uint16_t* const keys = entries + max_rows * entry_dim;
  uint16_t* const values = keys + max_rows * w_uk.rows();
  args.partials = reinterpret_cast<float*>(values + max_rows * w_uv.rows());
  args.cache.num_kv_heads = args.num_heads;  // what the units are multiplied by
  const auto multiply = [&](const CudaWeight& weight, uint16_t* out, int64_t rows) {
    const Tensor x(entries, DType::kBF16, {rows, entry_dim});
    const Linear product = {.x = x.Cols(entry_dim - weight.cols(), entry_dim),
                            .weight = &weight,
                            .bias = {},
                            .out = Tensor(out, DType::kBF16, {rows, weight.rows()})};
    gemm_.Run(product, weight, Handle(stream));
  };
  for (const PlannedChunk& chunk : plan.chunks()) {
    CUDA_RUN(guard_, LaunchGatherEntries({.cache = op.cache,
                                          .table_rows = args.table_rows,
                                          .block_tables = args.block_tables,
                                          .table_stride = args.table_stride,
                                          .segments = plan.segments() + chunk.first_segment,
                                          .num_segments = chunk.num_segments,
                                          .num_rows = chunk.num_rows,
                                          .out = entries},
                                         Handle(stream)));
    multiply(w_uk, keys, chunk.num_rows);
    multiply(w_uv, values, chunk.num_rows);
    const int64_t jobs = int64_t{chunk.num_units} * heads;
    const auto ctas = static_cast<int>(std::min<int64_t>(num_sms_ * kWideCtasPerSm, jobs));
    CUDA_RUN(guard_, LaunchExpandedAttention(args,
                                             {.entries = entries,
                                              .keys = keys,
                                              .values = values,
                                              .num_rows = chunk.num_rows,
                                              .entry_dim = entry_dim,
                                              .units = plan.expanded_units() + chunk.first_unit,
                                              .num_units = chunk.num_units},
                                             ctas, Handle(stream)));
  }
}

}  // namespace tokamak::cuda
