#include "ops/cuda/attention_plan.h"

#include <algorithm>
#include <tuple>

#include "base/ceil_div.h"
#include "base/check.h"
#include "base/error.h"
#include "ops/cuda/stream.h"

namespace tokamak::cuda {
namespace {

// Partial sums that a plan has room for, in tiles: bounds its memory, and with it how many CTAs can
// share the longest sequences.
constexpr int kMaxPartials = 1024;
constexpr int64_t kMaxPartialBytes = 128 << 20;

// That a unit computes.
int NumSplits(const AttentionUnit& unit) {
  return unit.split < 0 ? unit.end_split - unit.begin_split : 1;
}

bool HoldsKeys(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

}  // namespace

CudaAttentionPlan::CudaAttentionPlan(const AttentionShape& shape, int num_ctas, CallGuard& guard,
                                     BlockPool& pinned)
    : shape_(shape),
      guard_(guard),
      pinned_(pinned),
      group_(shape.num_heads / shape.num_kv_heads),
      ctas_(static_cast<int>(CeilDiv(int64_t{num_ctas}, shape.num_kv_heads))) {}

Result<std::unique_ptr<CudaAttentionPlan>> CudaAttentionPlan::Make(const AttentionShape& shape,
                                                                   int num_ctas, CallGuard& guard,
                                                                   BlockPool& pinned) {
  if (shape.head_dim > kMaxHeadDim) {
    return Unimplemented("CUDA: attention with heads of {}; up to {} are supported", shape.head_dim,
                         kMaxHeadDim);
  }
  if (!shape.causal) return Unimplemented("CUDA: attention that is not causal");
  if (!HoldsKeys(shape.kv_dtype)) {
    return Unimplemented("CUDA: a KV cache of {}", Name(shape.kv_dtype));
  }
  CHECK(shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0);
  std::unique_ptr<CudaAttentionPlan> plan(new CudaAttentionPlan(shape, num_ctas, guard, pinned));
  RETURN_IF_ERROR(plan->AllocateMemory());
  return plan;
}

int64_t CudaAttentionPlan::MaxUnits() const {
  return CeilDiv(int64_t{shape_.max_tokens} * group_, kTileRows) + shape_.max_seqs + max_partials_;
}

Status CudaAttentionPlan::AllocateMemory() {
  const int64_t partial_bytes = int64_t{shape_.num_kv_heads} * kTileRows * (shape_.head_dim + 2) *
                                static_cast<int64_t>(sizeof(float));
  max_partials_ =
      static_cast<int>(std::min<int64_t>(kMaxPartials, kMaxPartialBytes / partial_bytes));
  const int64_t bytes = static_cast<int64_t>(sizeof(AttentionHeader)) +
                        MaxUnits() * static_cast<int64_t>(sizeof(AttentionUnit));
  const auto allocate = [this](int64_t size, MemoryKind kind) {
    return cuda::AllocateMemory(guard_, static_cast<size_t>(size), kind);
  };
  ASSIGN_OR_RETURN(device_, allocate(bytes, MemoryKind::kDevice));
  RETURN_IF_ERROR(pinned_.Reserve(kStepsInFlight, static_cast<size_t>(bytes)));
  ASSIGN_OR_RETURN(partials_, allocate(max_partials_ * partial_bytes, MemoryKind::kDevice));
  const int64_t counter_bytes = int64_t{std::max(1, max_partials_)} * shape_.num_kv_heads *
                                static_cast<int64_t>(sizeof(int32_t));
  ASSIGN_OR_RETURN(counters_, allocate(counter_bytes, MemoryKind::kDevice));
  RETURN_IF_ERROR(
      CUDA_TRY(guard_, cudaMemset(counters_.data(), 0, static_cast<size_t>(counter_bytes))));
  // The memset runs in the default stream, which others do not wait for.
  return CUDA_TRY(guard_, cudaDeviceSynchronize());
}

int64_t CudaAttentionPlan::AddTiles(const AttentionBatch& batch, int32_t s, int64_t long_splits,
                                    AttentionUnit* units) {
  const auto seq = static_cast<size_t>(s);
  if (batch.seq_lens[seq] == 0) return 0;  // padding
  const int32_t queries = batch.query_start_loc[seq + 1] - batch.query_start_loc[seq];
  const int32_t rows = queries * group_;
  int64_t total_splits = 0;
  for (int32_t row = 0; row < rows; row += kTileRows) {
    AttentionUnit unit;
    unit.first_token = batch.query_start_loc[seq];
    unit.first_position = batch.seq_lens[seq] - queries;
    unit.first_row = row;
    unit.num_rows = std::min(kTileRows, rows - row);
    unit.sequence = s;
    const int32_t first_position = unit.first_position + row / group_;
    const int32_t last_position = unit.first_position + (row + unit.num_rows - 1) / group_;
    const int32_t first_key =
        shape_.window > 0 ? std::max(0, first_position + 1 - shape_.window) : 0;
    unit.begin_split = first_key / kSplitKeys;
    unit.end_split = last_position / kSplitKeys + 1;
    unit.split = -1;
    unit.partial = 0;
    const int splits = unit.end_split - unit.begin_split;
    total_splits += splits;
    if (units == nullptr) continue;
    if (splits > long_splits && num_partials_ + splits <= max_partials_) {
      unit.partial = num_partials_;
      num_partials_ += splits;
      for (unit.split = unit.begin_split; unit.split < unit.end_split; ++unit.split) {
        units[num_units_++] = unit;
      }
    } else {
      units[num_units_++] = unit;
    }
  }
  return total_splits;
}

void CudaAttentionPlan::Fill(const AttentionBatch& batch, Stream& stream) {
  table_rows_ = batch.table_rows;
  tables_ = batch.block_tables;
  const int32_t num_seqs = batch.num_seqs();
  CHECK(
      num_seqs <= shape_.max_seqs &&
      (num_seqs == 0 || batch.query_start_loc[static_cast<size_t>(num_seqs)] <= shape_.max_tokens));
  int64_t tiles = 0;
  for (int32_t s = 0; s < num_seqs; ++s) {
    const auto seq = static_cast<size_t>(s);
    tiles += CeilDiv(int64_t{batch.query_start_loc[seq + 1] - batch.query_start_loc[seq]} * group_,
                     kTileRows);
  }
  const auto max_bytes =
      sizeof(AttentionHeader) + static_cast<size_t>(tiles + max_partials_) * sizeof(AttentionUnit);
  const BlockPool::Block staging = pinned_.Take(max_bytes);
  if (staging.data == nullptr) return;
  // Tiles with more than a CTA's share of the splits are spread. That changes no result, only which
  // CTA computes it. The others come first, the longest ahead: CTAs take units in turn.
  int64_t total_splits = 0;
  for (int32_t s = 0; s < num_seqs; ++s) total_splits += AddTiles(batch, s, 0, nullptr);
  const int64_t long_splits = CeilDiv(total_splits, ctas_);
  num_units_ = 0;
  num_partials_ = 0;
  auto* units = reinterpret_cast<AttentionUnit*>(staging.data + sizeof(AttentionHeader));
  for (int32_t s = 0; s < num_seqs; ++s) AddTiles(batch, s, long_splits, units);
  std::sort(units, units + num_units_, [](const AttentionUnit& a, const AttentionUnit& b) {
    return std::tuple(-NumSplits(a), a.sequence, a.first_row, a.split) <
           std::tuple(-NumSplits(b), b.sequence, b.first_row, b.split);
  });
  CHECK(num_units_ <= std::min(tiles + max_partials_, MaxUnits()));
  *reinterpret_cast<AttentionHeader*>(staging.data) = {
      .num_units = static_cast<int32_t>(num_units_), .unused = {}};
  const size_t bytes =
      sizeof(AttentionHeader) + static_cast<size_t>(num_units_) * sizeof(AttentionUnit);
  CUDA_RUN(guard_, cudaMemcpyAsync(device_.data(), staging.data, bytes, cudaMemcpyHostToDevice,
                                   Handle(stream)));
  static_cast<CudaStream&>(stream).completions()->Add(
      {.block = staging, .deliver = nullptr, .results = {}});
}

}  // namespace tokamak::cuda
