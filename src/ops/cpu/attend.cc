#include "ops/cpu/attend.h"

#include <cmath>

#include "base/check.h"
#include "ops/cpu/activation.h"
#include "ops/cpu/attention_plan.h"
#include "ops/cpu/cache_layout.h"

namespace tokamak::cpu {
namespace {

// Returns whether the heads that share a KV head fill whole blocks of an output row.
bool GroupIsWholeBlocks(const CpuAttentionPlan& plan, DType dtype) {
  return plan.group() * plan.shape().head_dim % Info(dtype).block_elements == 0;
}

// The cache as seen from KV head `kv_head`.
AttentionCache HeadCache(const KvLayerView& cache, int kv_head, const int32_t* block_table) {
  const auto key_stride = static_cast<int64_t>(RowBytes(cache.dtype, cache.head_dim));
  const int64_t value_stride = cache.values_in_keys
                                   ? key_stride
                                   : static_cast<int64_t>(RowBytes(cache.dtype, cache.ValueDim()));
  return {.base = cache.base,
          .block_stride = cache.block_stride,
          .k_offset = cache.k_offset + kv_head * cache.block_size * key_stride,
          .v_offset = cache.v_offset + kv_head * cache.block_size * value_stride,
          .key_stride = key_stride,
          .value_stride = value_stride,
          .keys_in_rows = cache.values_in_keys,
          .dtype = cache.dtype,
          .block_size = cache.block_size,
          .block_table = block_table};
}

// If the output is rounded, writes floats over the queries first, which are no longer needed.
void WriteAttention(const Kernels& kernels, const Attention& op, const QueryBlock& block,
                    int first_head, int group, int value_dim, const AttentionPartial& result) {
  const Tensor& floats = op.out.dtype == DType::kF32 ? op.out : op.q;
  for (int64_t r = 0; r < static_cast<int64_t>(block.num_tokens) * group; ++r) {
    const int64_t token = block.first_token + r / group;
    const int64_t head = first_head + r % group;
    float sum = result.sum[r];
    if (!op.sinks.empty()) {
      const float sink = static_cast<const float*>(op.sinks.data)[head];
      sum += std::exp2(sink * static_cast<float>(M_LOG2E) - result.highest[r]);
    }
    kernels.finish_head(result.values + r * PadTo16(value_dim), sum, value_dim,
                        floats.Row<float>(token) + head * value_dim);
    if (!op.output_lse.empty()) {
      op.output_lse.Row<float>(token)[head] =
          static_cast<float>(result.highest[r] * M_LN2) + std::log(sum);
    }
  }
}

void AttendUnit(const IsaKernels& isa, const Attention& op, const AttentionUnit& unit, int kv_head,
                int worker) {
  const Kernels& kernels = *isa.kernels;
  const auto& plan = static_cast<const CpuAttentionPlan&>(*op.plan);
  const QueryBlock& block = plan.blocks()[static_cast<size_t>(unit.block)];
  const KvLayerView& cache = op.cache;
  const int group = plan.group();
  const int head_dim = cache.head_dim;
  const int value_dim = cache.ValueDim();
  const AttentionTask task = {
      .cache = HeadCache(cache, kv_head, plan.TableOf(block)),
      .q = op.q.Row<float>(block.first_token) + static_cast<int64_t>(kv_head) * group * head_dim,
      .q_stride = op.q.float_stride(),
      .num_tokens = block.num_tokens,
      .group = group,
      .head_dim = head_dim,
      .value_dim = value_dim,
      .scale = op.scale,
      .softcap = op.softcap,
      .slopes = op.slopes.empty() ? nullptr
                                  : static_cast<const float*>(op.slopes.data) +
                                        static_cast<int64_t>(kv_head) * group,
      .first_position = block.first_position,
      .window = plan.shape().window,
      .num_keys = block.num_keys,
      .scratch = plan.WorkerScratch(worker)};
  const int64_t rows = static_cast<int64_t>(block.num_tokens) * group;
  AttentionPartial result;
  if (unit.split == AttentionUnit::kAllSplits) {
    result = plan.WorkerPartial(worker, 0, rows);
    kernels.attend_split(task, block.first_split, result);
    const AttentionPartial next = plan.WorkerPartial(worker, 1, rows);
    for (int64_t split = block.first_split + 1; split < block.end_split; ++split) {
      kernels.attend_split(task, split, next);
      kernels.merge(rows, value_dim, next, result);
    }
  } else {
    kernels.attend_split(task, unit.split, plan.SplitPartial(block, kv_head, unit.split));
    if (!plan.SplitDone(block, kv_head)) return;
    result = plan.SplitPartial(block, kv_head, block.first_split);
    for (int64_t split = block.first_split + 1; split < block.end_split; ++split) {
      kernels.merge(rows, value_dim, plan.SplitPartial(block, kv_head, split), result);
    }
  }
  WriteAttention(kernels, op, block, kv_head * group, group, value_dim, result);
  if (op.out.dtype == DType::kF32 || !GroupIsWholeBlocks(plan, op.out.dtype)) return;
  const int64_t width = static_cast<int64_t>(group) * head_dim;
  const int64_t first = kv_head * width;
  for (int64_t token = block.first_token; token < block.first_token + block.num_tokens; ++token) {
    RoundActivations(isa, op.q.Row<float>(token) + first, first, width, op.out, token);
  }
}

}  // namespace

void StoreToken(const Kernels& kernels, const RopeAndStore& op, int64_t token) {
  const KvLayerView& cache = op.cache;
  const int64_t slot = static_cast<const int64_t*>(op.slot_mapping.data)[token];
  RopeTask task;
  task.head_dim = op.QueryDim();
  task.norm_eps = op.norm_eps;
  if (op.rope != nullptr) {
    const int32_t position = static_cast<const int32_t*>(op.positions.data)[token];
    task.cosines = op.rope->cos_sin.Row<float>(position);
    task.sines = task.cosines + op.rope->rotary_dim / 2;
    task.rotary_dim = op.rope->rotary_dim;
    task.half_split = op.rope->style == RopeStyle::kHalfSplit;
  }
  task.heads = op.q.Row<float>(token);
  task.num_heads = static_cast<int>(op.q.cols() / op.QueryDim());
  task.norm = op.q_norm != nullptr ? static_cast<const float*>(op.q_norm->data) : nullptr;
  kernels.rope(task);
  if (slot < 0) return;
  task.head_dim = cache.head_dim;
  task.heads = op.k.Row<float>(token);
  task.num_heads = cache.num_kv_heads;
  task.norm = op.k_norm != nullptr ? static_cast<const float*>(op.k_norm->data) : nullptr;
  kernels.rope(task);

  std::byte* block = cache.base + slot / cache.block_size * cache.block_stride;
  const auto position = static_cast<int>(slot % cache.block_size);
  for (int h = 0; h < cache.num_kv_heads; ++h) {
    const AttentionCache head = HeadCache(cache, h, nullptr);
    const float* k = op.k.Row<float>(token) + static_cast<int64_t>(h) * cache.head_dim;
    if (cache.values_in_keys) {
      kernels.convert(cache.dtype, k, cache.head_dim,
                      block + head.k_offset + position * head.key_stride);
      continue;
    }
    std::byte* value = block + head.v_offset + position * head.value_stride;
    // Converts the key to a row: in the value's place if that is large enough, because the value is
    // written afterwards.
    alignas(64) std::byte row[kMaxUnequalDim * sizeof(float)];
    std::byte* const key = cache.ValueDim() >= cache.head_dim ? value : row;
    kernels.convert(cache.dtype, k, cache.head_dim, key);
    StoreKey(cache.dtype, cache.block_size, cache.head_dim, position, key, block + head.k_offset);
    kernels.convert(cache.dtype,
                    op.v.Row<float>(token) + static_cast<int64_t>(h) * cache.ValueDim(),
                    cache.ValueDim(), value);
  }
}

void Attend(const IsaKernels& isa, ThreadPool& pool, const Attention& op) {
  const auto& plan = static_cast<const CpuAttentionPlan&>(*op.plan);
  CHECK(op.cache.head_dim == plan.shape().head_dim &&
        op.cache.num_kv_heads == plan.shape().num_kv_heads);
  // If the output is rounded, its floats are first written over the queries.
  CHECK(op.out.dtype == DType::kF32 || op.cache.ValueDim() == op.cache.head_dim);
  const int kv_heads = op.cache.num_kv_heads;
  pool.ParallelFor(static_cast<int64_t>(plan.units().size()) * kv_heads,
                   [&](int64_t item, int worker) {
                     AttendUnit(isa, op, plan.units()[static_cast<size_t>(item / kv_heads)],
                                static_cast<int>(item % kv_heads), worker);
                   });
  if (op.out.dtype == DType::kF32 || GroupIsWholeBlocks(plan, op.out.dtype)) return;
  pool.ParallelFor(op.out.rows(), [&](int64_t token, int) {
    RoundActivations(isa, op.q.Row<float>(token), 0, op.out.cols(), op.out, token);
  });
}

}  // namespace tokamak::cpu
