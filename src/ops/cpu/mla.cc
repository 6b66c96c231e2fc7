// An item is a block of a sequence's tokens and one head. Split by split it reads the latents,
// decompresses the head's keys and values into rows [rotated | nope | value], and attends to them
// as to an f32 cache.
//
// Bound, per block and head: keys · latent · (nope_dim + value_dim) multiply-adds to decompress,
// and tokens · keys · (key + value) for attention. Each result depends only on its own row.
#include <algorithm>

#include "base/check.h"
#include "ops/cpu/attend.h"
#include "ops/cpu/attention_plan.h"
#include "ops/cpu/linear.h"
#include "quant/quantize.h"

namespace tokamak::cpu {
namespace {

using Expanded = CpuAttentionPlan::Expanded;

// Reads keys [first, end) of the sequence with this block table as f32 rows.
void ReadLatents(const KvLayerView& cache, const int32_t* table, int64_t first, int64_t end,
                 float* latents) {
  const auto row_bytes = static_cast<int64_t>(RowBytes(cache.dtype, cache.head_dim));
  for (int64_t key = first; key < end; ++key, latents += PadTo16(cache.head_dim)) {
    const std::byte* block = cache.base + table[key / cache.block_size] * cache.block_stride;
    DequantizeRow(cache.dtype, block + cache.k_offset + key % cache.block_size * row_bytes,
                  cache.head_dim, latents);
  }
}

// f32 rows, padded to whole vectors.
Tensor PaddedRows(float* first, int64_t rows, int64_t cols) {
  Tensor tensor(first, DType::kF32, {rows, cols});
  tensor.row_stride = PadTo16(cols) * static_cast<int64_t>(sizeof(float));
  return tensor;
}

// Decompresses for one head the keys of the split that any token of the block sees.
void ExpandSplit(const IsaKernels& isa, const LatentAttention& op, const CpuAttentionPlan& plan,
                 const QueryBlock& block, int64_t head, int64_t split, const Expanded& memory,
                 float* tile) {
  const KvLayerView& cache = op.cache;
  const int64_t first = split * kKeySplit;
  const int64_t end = std::min(first + kKeySplit, block.first_position + block.num_tokens);
  const int64_t latent_stride = PadTo16(cache.head_dim);
  const int64_t rotated = cache.head_dim - cache.ValueDim();
  const int64_t stride = PadTo16(plan.ExpandedDim());
  ReadLatents(cache, plan.TableOf(block), first, end, memory.latents);
  for (int64_t i = 0; i < end - first; ++i) {
    std::copy_n(memory.latents + i * latent_stride, rotated, memory.entries + i * stride);
  }
  const auto h = static_cast<size_t>(head);
  const Tensor latents =
      PaddedRows(memory.latents, end - first, cache.head_dim).Cols(rotated, cache.head_dim);
  const Tensor entries = PaddedRows(memory.entries, end - first, plan.ExpandedDim());
  RunLinearAlone(isa, *op.w_uk->members()[h], latents, entries.Cols(rotated, plan.ExpandedKeyDim()),
                 tile);
  RunLinearAlone(isa, *op.w_uv->members()[h], latents,
                 entries.Cols(plan.ExpandedKeyDim(), plan.ExpandedDim()), tile);
}

void AttendBlock(const IsaKernels& isa, const LatentAttention& op, const QueryBlock& block,
                 int64_t head, int worker, float* tile) {
  const Kernels& kernels = *isa.kernels;
  const auto& plan = static_cast<const CpuAttentionPlan&>(*op.plan);
  const int64_t key_dim = plan.ExpandedKeyDim(), value_dim = plan.shape().expansion.value_dim;
  const int64_t rows = block.num_tokens;
  const auto stride = static_cast<int64_t>(sizeof(float)) * PadTo16(plan.ExpandedDim());
  const Expanded memory = plan.WorkerExpanded(worker, rows);
  AttentionTask task = {.cache = {.base = reinterpret_cast<const std::byte*>(memory.entries),
                                  .block_stride = 0,  // every block number means the current split
                                  .k_offset = 0,
                                  .v_offset = key_dim * static_cast<int64_t>(sizeof(float)),
                                  .key_stride = stride,
                                  .value_stride = stride,
                                  .keys_in_rows = true,
                                  .dtype = DType::kF32,
                                  .block_size = kKeySplit,
                                  .block_table = plan.AnyBlock()},
                        .q = op.q.Row<float>(block.first_token) + head * key_dim,
                        .q_stride = op.q.float_stride(),
                        .num_tokens = block.num_tokens,
                        .group = 1,
                        .head_dim = static_cast<int>(key_dim),
                        .value_dim = static_cast<int>(value_dim),
                        .scale = op.scale,
                        .first_position = block.first_position,
                        .window = plan.shape().window,
                        .scratch = memory.scratch};
  for (int64_t split = block.first_split; split < block.end_split; ++split) {
    ExpandSplit(isa, op, plan, block, head, split, memory, tile);
    const bool is_first = split == block.first_split;
    kernels.attend_split(task, split, memory.partial[is_first ? 0 : 1]);
    if (!is_first) kernels.merge(rows, value_dim, memory.partial[1], memory.partial[0]);
  }
  const AttentionPartial& result = memory.partial[0];
  for (int64_t r = 0; r < rows; ++r) {
    kernels.finish_head(result.values + r * PadTo16(value_dim), result.sum[r],
                        static_cast<int>(value_dim),
                        op.out.Row<float>(block.first_token + r) + head * value_dim);
  }
}

}  // namespace

void AttendExpanded(const IsaKernels& isa, ThreadPool& pool, float* tiles,
                    const LatentAttention& op) {
  const auto& plan = static_cast<const CpuAttentionPlan&>(*op.plan);
  const int64_t heads = op.w_uk->size();
  CHECK(op.cache.values_in_keys && op.cache.head_dim == plan.shape().head_dim);
  pool.ParallelFor(static_cast<int64_t>(plan.expanded().size()) * heads,
                   [&](int64_t item, int worker) {
                     const QueryBlock& block = plan.expanded()[static_cast<size_t>(item / heads)];
                     AttendBlock(isa, op, block, item % heads, worker,
                                 tiles + worker * static_cast<int64_t>(kTileFloats));
                   });
}

}  // namespace tokamak::cpu
