#include "ops/cuda/flashinfer/plan.h"

#include <limits>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/stream.h"

namespace tokamak::cuda {
namespace {

// Returns the property of the shape that the kernels do not support, or "".
std::string Unsupported(const AttentionShape& shape) {
  const bool has_kernel = shape.head_dim == 64 || shape.head_dim == 128;
  if (!has_kernel) return fmt::format("heads of {}", shape.head_dim);
  if (shape.values_in_keys || shape.ValueDim() != shape.head_dim) return "values unlike its keys";
  if (shape.kv_dtype != DType::kBF16) return fmt::format("a KV cache of {}", Name(shape.kv_dtype));
  if (shape.window > 0) return fmt::format("a sliding window of {}", shape.window);
  if (!shape.causal || shape.bidirectional) return "attention that is not causal";
  return "";
}

}  // namespace

FlashInferPlan::FlashInferPlan(const AttentionShape& shape, int max_ctas, CallGuard& guard,
                               BlockPool& pinned)
    : shape_(shape),
      cutter_(shape.num_heads / shape.num_kv_heads, max_ctas / shape.num_kv_heads),
      guard_(guard),
      pinned_(pinned) {}

Result<std::unique_ptr<FlashInferPlan>> FlashInferPlan::Make(const AttentionShape& shape,
                                                             int max_ctas, CallGuard& guard,
                                                             BlockPool& pinned) {
  if (const std::string reason = Unsupported(shape); !reason.empty()) {
    return Unimplemented("attention=flashinfer: supports {}, but the model has {}",
                         kFlashInferSupports, reason);
  }
  // The kernel counts the positions of all block tables in 32 bits.
  if (int64_t{shape.max_seqs} * shape.max_blocks_per_seq * shape.block_size >
      std::numeric_limits<int32_t>::max()) {
    return Unimplemented(
        "attention=flashinfer: steps of up to {} sequences with contexts of {} positions make more "
        "than 2^31 positions; lower --max-seqs or --max-context",
        shape.max_seqs, int64_t{shape.max_blocks_per_seq} * shape.block_size);
  }
  std::unique_ptr<FlashInferPlan> plan(new FlashInferPlan(shape, max_ctas, guard, pinned));
  RETURN_IF_ERROR(plan->AllocateMemory());
  return plan;
}

Status FlashInferPlan::AllocateMemory() {
  const FlashInferBounds bounds = cutter_.Bounds(shape_.max_seqs, shape_.max_tokens);
  const auto allocate = [this](int64_t bytes) {
    return cuda::AllocateMemory(guard_, static_cast<size_t>(bytes), MemoryKind::kDevice);
  };
  const int64_t partial_heads = bounds.num_partials * shape_.num_heads;
  ASSIGN_OR_RETURN(table_starts_, allocate(4 * (int64_t{shape_.max_seqs} + 1)));
  ASSIGN_OR_RETURN(arrays_, allocate(static_cast<int64_t>(bounds.bytes)));
  ASSIGN_OR_RETURN(partials_, allocate(2 * partial_heads * shape_.head_dim));
  ASSIGN_OR_RETURN(partial_lse_, allocate(4 * partial_heads));
  return pinned_.Reserve(kStepsInFlight, bounds.bytes);
}

void FlashInferPlan::Fill(const AttentionBatch& batch, Stream& stream) {
  const auto ints = [](std::byte* memory) { return reinterpret_cast<int32_t*>(memory); };
  step_ = {.cut = cutter_.Cut(batch.query_start_loc, batch.seq_lens),
           .arrays = ints(arrays_.data()),
           .query_start_loc = static_cast<int32_t*>(batch.device_query_start_loc.data),
           .seq_lens = static_cast<int32_t*>(batch.device_seq_lens.data),
           .table_starts = ints(table_starts_.data()),
           .block_tables = static_cast<int32_t*>(batch.block_tables.data),
           .partials = partials_.data(),
           .partial_lse = reinterpret_cast<float*>(partial_lse_.data())};
  const FlashInferCut& cut = step_.cut;
  const FlashInferBounds bounds = cutter_.Bounds(shape_.max_seqs, shape_.max_tokens);
  CHECK(cut.num_seqs <= shape_.max_seqs && cut.num_tokens <= shape_.max_tokens &&
        cut.bytes() <= bounds.bytes && cut.num_partials <= bounds.num_partials);
  if (cut.num_ctas == 0) return;
  CUDA_RUN(guard_, LaunchTableStarts(batch.table_rows, batch.block_tables, step_, Handle(stream)));
  const BlockPool::Block staging = pinned_.Take(cut.bytes());
  if (staging.data == nullptr) return;
  cutter_.Write(cut, batch.query_start_loc, batch.seq_lens, ints(staging.data));
  CUDA_RUN(guard_, cudaMemcpyAsync(step_.arrays, staging.data, cut.bytes(), cudaMemcpyHostToDevice,
                                   Handle(stream)));
  static_cast<CudaStream&>(stream).completions()->Add(
      {.block = staging, .deliver = nullptr, .results = {}});
}

void FlashInferPlan::Run(const Attention& op, Stream& stream) const {
  CHECK(op.cache.head_dim == shape_.head_dim && op.cache.num_kv_heads == shape_.num_kv_heads &&
        op.cache.block_size == shape_.block_size && op.cache.dtype == DType::kBF16);
  CHECK(op.q.dtype == DType::kBF16 && op.out.dtype == DType::kBF16 &&
        ElementStride(op.out) == int64_t{shape_.num_heads} * shape_.head_dim);
  CHECK(op.softcap == 0 && op.sinks.empty() && op.slopes.empty() && op.output_lse.empty());
  CUDA_RUN(guard_, LaunchFlashInfer(op, step_, Handle(stream)));
}

}  // namespace tokamak::cuda
