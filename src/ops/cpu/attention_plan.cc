#include "ops/cpu/attention_plan.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "base/error.h"
#include "ops/host/host_ops.h"

namespace tokamak::cpu {
namespace {

// Rows (tokens × heads of a group) that share the loading of a tile of keys.
constexpr int kRowsPerBlock = 48;
// An item with more than 1 / kEnoughItems of a step's work is cut into its splits. That gives
// enough items for a large machine, and few enough that their partials need little memory.
constexpr int64_t kEnoughItems = 64;
// Room for the partials of separate splits; blocks beyond it are not split.
constexpr int64_t kMaxPartialFloats = 4 << 20;

// Tokens per block of LatentAttention. They share the decompressed keys and values, whose
// decompression takes as long as the attention of a few hundred tokens.
constexpr int kExpandedTokens = 512;

int TokensPerBlock(const AttentionShape& shape) {
  return std::max(1, kRowsPerBlock / (shape.num_heads / shape.num_kv_heads));
}

// Returns the work of one item; the unit is one split of one token.
int64_t Work(const QueryBlock& block) {
  return block.num_tokens * (block.end_split - block.first_split);
}

int64_t MaxSplits(const AttentionShape& shape) {
  const int64_t positions = static_cast<int64_t>(shape.max_blocks_per_seq) * shape.block_size;
  return (positions + kKeySplit - 1) / kKeySplit;
}

}  // namespace

CpuAttentionPlan::CpuAttentionPlan(const AttentionShape& shape)
    : shape_(shape),
      tokens_per_block_(TokensPerBlock(shape)),
      counters_(new std::atomic<int32_t>[static_cast<size_t>(kEnoughItems)]) {
  const auto max_blocks = static_cast<size_t>(shape.max_tokens);
  blocks_.reserve(max_blocks);
  units_.reserve(max_blocks + static_cast<size_t>(kEnoughItems * MaxSplits(shape)));
  if (shape.expansion.min_queries > 0) {
    expanded_.reserve(max_blocks);
    zeros_.resize(static_cast<size_t>(MaxSplits(shape)) + 1);
  }
}

Result<std::unique_ptr<CpuAttentionPlan>> CpuAttentionPlan::Make(const AttentionShape& shape,
                                                                 int num_threads) {
  if (shape.num_kv_heads <= 0 || shape.num_heads % shape.num_kv_heads != 0) {
    return InvalidArgument("{} attention heads cannot be divided among {} KV heads",
                           shape.num_heads, shape.num_kv_heads);
  }
  if (shape.kv_dtype != DType::kF32 && shape.kv_dtype != DType::kF16 &&
      shape.kv_dtype != DType::kBF16 && shape.kv_dtype != DType::kF8E4M3 &&
      shape.kv_dtype != DType::kQ8_0) {
    return Unimplemented(
        "the CPU backend supports KV caches in F32, F16, BF16, F8_E4M3 and Q8_0, not in {}",
        Name(shape.kv_dtype));
  }
  if (shape.head_dim % Info(shape.kv_dtype).block_elements != 0) {
    return InvalidArgument("a KV cache in {} needs heads whose size is a multiple of {}, not {}",
                           Name(shape.kv_dtype), Info(shape.kv_dtype).block_elements,
                           shape.head_dim);
  }
  if (!shape.causal && shape.window > 0) {
    return Unimplemented("non-causal attention within a window");
  }
  if (shape.ValueDim() % Info(shape.kv_dtype).block_elements != 0) {
    return InvalidArgument("a KV cache in {} needs values whose size is a multiple of {}, not {}",
                           Name(shape.kv_dtype), Info(shape.kv_dtype).block_elements,
                           shape.ValueDim());
  }
  if (!shape.values_in_keys && shape.ValueDim() < shape.head_dim &&
      shape.head_dim > kMaxUnequalDim) {
    return Unimplemented("keys of {} elements with values of {}: at most {} are supported",
                         shape.head_dim, shape.ValueDim(), kMaxUnequalDim);
  }
  std::unique_ptr<CpuAttentionPlan> plan(new CpuAttentionPlan(shape));
  plan->partial_floats_ = std::min(
      kMaxPartialFloats, kEnoughItems * MaxSplits(shape) * plan->partial_floats(plan->max_rows()));
  const auto bytes = [](int64_t floats) { return static_cast<size_t>(floats) * sizeof(float); };
  ASSIGN_OR_RETURN(plan->workers_, AllocateHostMemory(bytes(num_threads * plan->worker_floats())));
  ASSIGN_OR_RETURN(plan->partials_, AllocateHostMemory(bytes(plan->partial_floats_)));
  return plan;
}

void CpuAttentionPlan::AddSequence(int32_t sequence) {
  const auto s = static_cast<size_t>(sequence);
  if (batch_.seq_lens[s] == 0) return;  // padding
  const int64_t begin = batch_.query_start_loc[s], end = batch_.query_start_loc[s + 1];
  const bool expand = shape_.expansion.Takes(static_cast<int32_t>(end - begin));
  const int step = expand ? kExpandedTokens : tokens_per_block_;
  ForEachPart(shape_, batch_, sequence, [&](const QueryPart& part) {
    for (int64_t token = part.begin; token < part.end; token += step) {
      QueryBlock block;
      block.sequence = sequence;
      block.first_token = token;
      block.num_tokens = static_cast<int>(std::min<int64_t>(step, part.end - token));
      block.first_position = batch_.seq_lens[s] - (end - token);
      CHECK(block.first_position >= 0);
      const int64_t first_key =
          shape_.window > 0 ? std::max<int64_t>(0, block.first_position + 1 - shape_.window) : 0;
      block.first_split = first_key / kKeySplit;
      block.num_keys = part.end_key;
      const int64_t end_key =
          part.end_key > 0 ? part.end_key : block.first_position + block.num_tokens;
      block.end_split = (end_key - 1) / kKeySplit + 1;
      (expand ? expanded_ : blocks_).push_back(block);
    }
  });
}

void CpuAttentionPlan::Fill(const AttentionBatch& batch, Stream&) {
  batch_ = batch;
  blocks_.clear();
  expanded_.clear();
  units_.clear();
  for (int32_t s = 0; s < batch.num_seqs(); ++s) AddSequence(s);
  int64_t work = 0;
  for (const QueryBlock& block : blocks_) work += Work(block) * shape_.num_kv_heads;
  int64_t used = 0;
  int64_t counters = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    QueryBlock& block = blocks_[i];
    const auto index = static_cast<int32_t>(i);
    const int64_t splits = block.end_split - block.first_split;
    const int64_t rows = static_cast<int64_t>(block.num_tokens) * group();
    const int64_t needed = shape_.num_kv_heads * splits * partial_floats(rows);
    if (Work(block) * kEnoughItems <= work || splits == 1 || used + needed > partial_floats_) {
      units_.push_back({index, AttentionUnit::kAllSplits});
      continue;
    }
    block.partials = used;
    block.counters = counters;
    used += needed;
    for (int head = 0; head < shape_.num_kv_heads; ++head) {
      counters_[static_cast<size_t>(counters++)] = static_cast<int32_t>(splits);
    }
    for (int64_t split = block.first_split; split < block.end_split; ++split) {
      units_.push_back({index, split});
    }
  }
  // Longest first, so that no worker has a long one left when all others are done.
  const auto cost = [&](const AttentionUnit& unit) {
    const QueryBlock& block = blocks_[static_cast<size_t>(unit.block)];
    return unit.split == AttentionUnit::kAllSplits ? Work(block) : block.num_tokens;
  };
  std::sort(units_.begin(), units_.end(), [&](const AttentionUnit& a, const AttentionUnit& b) {
    return std::tuple(-cost(a), a.block, a.split) < std::tuple(-cost(b), b.block, b.split);
  });
}

const int32_t* CpuAttentionPlan::TableOf(const QueryBlock& block) const {
  const int32_t row = static_cast<const int32_t*>(batch_.table_rows.data)[block.sequence];
  return batch_.block_tables.Row<int32_t>(row);
}

int64_t CpuAttentionPlan::expanded_floats() const {
  if (shape_.expansion.min_queries == 0) return 0;
  const int64_t rows = std::min(shape_.max_tokens, kExpandedTokens);
  const int64_t value_dim = shape_.expansion.value_dim;
  return kKeySplit * (PadTo16(shape_.head_dim) + PadTo16(ExpandedDim())) +
         AttentionScratchFloats(rows, ExpandedKeyDim(), value_dim) +
         2 * AttentionPartialFloats(rows, value_dim);
}

int64_t CpuAttentionPlan::worker_floats() const {
  return std::max(scratch_floats() + 2 * partial_floats(max_rows()), expanded_floats());
}

CpuAttentionPlan::Expanded CpuAttentionPlan::WorkerExpanded(int worker, int64_t rows) const {
  const int64_t value_dim = shape_.expansion.value_dim;
  Expanded memory;
  memory.latents = WorkerScratch(worker);
  memory.entries = memory.latents + kKeySplit * PadTo16(shape_.head_dim);
  memory.scratch = memory.entries + kKeySplit * PadTo16(ExpandedDim());
  float* partial = memory.scratch + AttentionScratchFloats(rows, ExpandedKeyDim(), value_dim);
  memory.partial[0] = PartialAt(partial, rows, value_dim);
  partial += AttentionPartialFloats(rows, value_dim);
  memory.partial[1] = PartialAt(partial, rows, value_dim);
  return memory;
}

float* CpuAttentionPlan::WorkerScratch(int worker) const {
  return reinterpret_cast<float*>(workers_.data()) + worker * worker_floats();
}

AttentionPartial CpuAttentionPlan::PartialAt(float* memory, int64_t rows, int64_t value_dim) {
  float* const highest = memory + rows * PadTo16(value_dim);
  return {.highest = highest, .sum = highest + PadTo16(rows), .values = memory};
}

AttentionPartial CpuAttentionPlan::WorkerPartial(int worker, int index, int64_t rows) const {
  return PartialAt(WorkerScratch(worker) + scratch_floats() + index * partial_floats(max_rows()),
                   rows);
}

AttentionPartial CpuAttentionPlan::SplitPartial(const QueryBlock& block, int kv_head,
                                                int64_t split) const {
  const int64_t rows = static_cast<int64_t>(block.num_tokens) * group();
  const int64_t index = kv_head * (block.end_split - block.first_split) + split - block.first_split;
  return PartialAt(
      reinterpret_cast<float*>(partials_.data()) + block.partials + index * partial_floats(rows),
      rows);
}

bool CpuAttentionPlan::SplitDone(const QueryBlock& block, int kv_head) const {
  std::atomic<int32_t>& left = counters_[static_cast<size_t>(block.counters + kv_head)];
  if (left.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  // Resets the counter for the next layer, which begins after the pool's loop has ended.
  left.store(static_cast<int32_t>(block.end_split - block.first_split), std::memory_order_relaxed);
  return true;
}

}  // namespace tokamak::cpu
