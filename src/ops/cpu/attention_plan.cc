#include "ops/cpu/attention_plan.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "base/error.h"
#include "ops/host/host_ops.h"

namespace tokamak::cpu {
namespace {

// Rows (tokens times heads of a group) that are worth the loading of a tile of keys.
constexpr int kRowsPerBlock = 48;
// An item that is more than one part in so many of a step's work is cut into its splits: enough to
// feed a large machine, and few enough to need little room.
constexpr int64_t kEnoughItems = 64;
// Room for the partials of splits that run apart; what does not fit is not split.
constexpr int64_t kMaxPartialFloats = 4 << 20;

int TokensPerBlock(const AttentionShape& shape) {
  return std::max(1, kRowsPerBlock / (shape.num_heads / shape.num_kv_heads));
}

// Of one item, in splits of one token.
int64_t Work(const QueryBlock& block) {
  return block.num_tokens * (block.end_split - block.first_split);
}

int64_t MaxSplits(const AttentionShape& shape) {
  const int64_t positions = static_cast<int64_t>(shape.max_blocks_per_seq) * shape.block_size;
  return (positions + kKeySplit - 1) / kKeySplit;
}

}  // namespace

CpuAttentionPlan::CpuAttentionPlan(const AttentionShape& shape, Buffer workers, Buffer partials,
                                   int64_t partial_floats)
    : shape_(shape),
      tokens_per_block_(TokensPerBlock(shape)),
      workers_(std::move(workers)),
      partials_(std::move(partials)),
      partial_floats_(partial_floats),
      counters_(new std::atomic<int32_t>[static_cast<size_t>(kEnoughItems)]) {
  const auto max_blocks = static_cast<size_t>(shape.max_tokens);
  blocks_.reserve(max_blocks);
  units_.reserve(max_blocks + static_cast<size_t>(kEnoughItems * MaxSplits(shape)));
}

Result<std::unique_ptr<CpuAttentionPlan>> CpuAttentionPlan::Make(const AttentionShape& shape,
                                                                 int num_threads) {
  if (shape.num_kv_heads <= 0 || shape.num_heads % shape.num_kv_heads != 0) {
    return InvalidArgument("{} attention heads cannot share {} KV heads", shape.num_heads,
                           shape.num_kv_heads);
  }
  if (shape.kv_dtype != DType::kF32 && shape.kv_dtype != DType::kF16 &&
      shape.kv_dtype != DType::kBF16 && shape.kv_dtype != DType::kQ8_0) {
    return Unimplemented("the CPU backend keeps a KV cache in F32, F16, BF16 or Q8_0, not {}",
                         Name(shape.kv_dtype));
  }
  if (shape.head_dim % Info(shape.kv_dtype).block_elements != 0) {
    return InvalidArgument("a KV cache in {} needs heads of a multiple of {} elements, not {}",
                           Name(shape.kv_dtype), Info(shape.kv_dtype).block_elements,
                           shape.head_dim);
  }
  const int group = shape.num_heads / shape.num_kv_heads;
  const int64_t rows = static_cast<int64_t>(TokensPerBlock(shape)) * group;
  const int64_t worker_floats = AttentionScratchFloats(rows, shape.head_dim) +
                                2 * AttentionPartialFloats(rows, shape.head_dim);
  const int64_t partial_floats =
      std::min(kMaxPartialFloats,
               kEnoughItems * MaxSplits(shape) * AttentionPartialFloats(rows, shape.head_dim));
  const auto bytes = [](int64_t floats) { return static_cast<size_t>(floats) * sizeof(float); };
  ASSIGN_OR_RETURN(Buffer workers, AllocateHostMemory(bytes(num_threads * worker_floats)));
  ASSIGN_OR_RETURN(Buffer partials, AllocateHostMemory(bytes(partial_floats)));
  return std::unique_ptr<CpuAttentionPlan>(
      new CpuAttentionPlan(shape, std::move(workers), std::move(partials), partial_floats));
}

void CpuAttentionPlan::AddSequence(int32_t sequence) {
  const auto s = static_cast<size_t>(sequence);
  if (batch_.kv_length[s] == 0) return;  // padding
  const int64_t begin = batch_.query_begin[s], end = batch_.query_begin[s + 1];
  for (int64_t token = begin; token < end; token += tokens_per_block_) {
    QueryBlock block;
    block.sequence = sequence;
    block.first_token = token;
    block.num_tokens = static_cast<int>(std::min<int64_t>(tokens_per_block_, end - token));
    block.first_position = batch_.kv_length[s] - (end - token);
    CHECK(block.first_position >= 0);
    const int64_t first_key =
        shape_.window > 0 ? std::max<int64_t>(0, block.first_position + 1 - shape_.window) : 0;
    block.first_split = first_key / kKeySplit;
    block.end_split = (block.first_position + block.num_tokens - 1) / kKeySplit + 1;
    blocks_.push_back(block);
  }
}

void CpuAttentionPlan::Fill(const AttentionBatch& batch, Stream&) {
  batch_ = batch;
  blocks_.clear();
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
    const int64_t needed =
        shape_.num_kv_heads * splits * AttentionPartialFloats(rows, shape_.head_dim);
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
  // The longest first, so that no worker is left with one when all else is done.
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
  return batch_.tables.Row<int32_t>(row);
}

int64_t CpuAttentionPlan::worker_floats() const {
  return AttentionScratchFloats(max_rows(), shape_.head_dim) +
         2 * AttentionPartialFloats(max_rows(), shape_.head_dim);
}

float* CpuAttentionPlan::WorkerScratch(int worker) const {
  return reinterpret_cast<float*>(workers_.data()) + worker * worker_floats();
}

AttentionPartial CpuAttentionPlan::PartialAt(float* memory, int64_t rows) const {
  float* const highest = memory + rows * PadTo16(shape_.head_dim);
  return {.highest = highest, .sum = highest + PadTo16(rows), .values = memory};
}

AttentionPartial CpuAttentionPlan::WorkerPartial(int worker, int index, int64_t rows) const {
  return PartialAt(WorkerScratch(worker) + AttentionScratchFloats(max_rows(), shape_.head_dim) +
                       index * AttentionPartialFloats(max_rows(), shape_.head_dim),
                   rows);
}

AttentionPartial CpuAttentionPlan::SplitPartial(const QueryBlock& block, int kv_head,
                                                int64_t split) const {
  const int64_t rows = static_cast<int64_t>(block.num_tokens) * group();
  const int64_t index = kv_head * (block.end_split - block.first_split) + split - block.first_split;
  return PartialAt(reinterpret_cast<float*>(partials_.data()) + block.partials +
                       index * AttentionPartialFloats(rows, shape_.head_dim),
                   rows);
}

bool CpuAttentionPlan::SplitDone(const QueryBlock& block, int kv_head) const {
  std::atomic<int32_t>& left = counters_[static_cast<size_t>(block.counters + kv_head)];
  if (left.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  // Ready for the next layer; the pool's barrier orders it.
  left.store(static_cast<int32_t>(block.end_split - block.first_split), std::memory_order_relaxed);
  return true;
}

}  // namespace tokamak::cpu
