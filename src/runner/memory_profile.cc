#include "runner/memory_profile.h"

#include <algorithm>
#include <limits>

#include "base/byte_count.h"
#include "base/error.h"
#include "runner/counting_pass.h"

namespace tokamak {
namespace {

// Returns the multiplications by weights that `count` has counted since the last call.
int64_t TakeMacs(CountOps& count) {
  const OpCounts& counts = count.counts();
  const int64_t macs = (counts[OpKind::kLinear].flops + counts[OpKind::kGroupedLinear].flops +
                        counts[OpKind::kHeadLinear].flops) /
                       2;
  count.Reset();
  return macs;
}

// Profiles a step of max_step_tokens rows that all need logits: the arena's peak, allocating in
// Runner's order, and the multiplications per row.
Status CountStep(const Model& model, CountOps& count, const RunnerShape& shape,
                 MemoryProfile& profile) {
  const int64_t tokens = shape.max_step_tokens;
  ASSIGN_OR_RETURN(const std::unique_ptr<CountingPass> counting,
                   CountingPass::Make(model.spec().cache, count, shape, tokens, tokens));
  nn::Pass& pass = counting->pass();
  counting->AddHidden(model.spec());
  count.Reset();
  const Tensor hidden = model.Forward(pass);
  profile.token_macs = TakeMacs(count) / tokens;
  if (model.spec().stage.last()) {
    {
      const int64_t rows = std::min<int64_t>(tokens, kScoredRowsAtOnce);
      ArenaScope scope(pass.arena);
      (void)model.Logits(pass, hidden.Rows(0, rows));
      profile.logits_macs = TakeMacs(count) / rows;
    }
    const int64_t drawn = std::min<int64_t>(tokens, shape.max_seqs + shape.max_step_drafts);
    // A mask that comes after an argmax makes the runner compute all logits as well.
    (void)pass.arena.Allocate(DType::kF32, {drawn});
    (void)pass.arena.Allocate(DType::kI32, {drawn});
    (void)model.Logits(pass, hidden.Rows(0, drawn));
  }
  profile.arena_bytes = static_cast<int64_t>(counting->arena().peak());
  return Status();
}

// Blocks of all groups for one sequence of `positions` positions.
int64_t BlocksFor(int64_t positions, const nn::CacheLayout& cache, const RunnerShape& shape) {
  return (positions + shape.block_size - 1) / shape.block_size *
         static_cast<int64_t>(cache.groups.size());
}

int64_t DefaultBlocks(const nn::CacheLayout& cache, const RunnerShape& shape,
                      const CacheBudget& budget, int64_t free_bytes, int64_t block_bytes) {
  const int64_t wanted =
      std::max(BlocksFor(shape.max_context, cache, shape),
               shape.max_seqs *
                   BlocksFor(std::min(shape.max_context, budget.default_positions), cache, shape));
  const auto affordable =
      static_cast<int64_t>(static_cast<double>(free_bytes) * budget.default_fraction) / block_bytes;
  return std::min(wanted, affordable);
}

}  // namespace

// A cache row must be a whole number of the dtype's blocks.
Status CheckHeads(const nn::CacheLayout& cache, DType dtype) {
  const int block = Info(dtype).block_elements;
  for (const nn::KvLayerSpec& layer : cache.layers) {
    for (const int32_t dim : {layer.head_dim, layer.ValueDim()}) {
      if (dim % block == 0) continue;
      return InvalidArgument(
          "kv_cache_dtype: {} needs heads whose size is a multiple of {}, but this model's have "
          "{}",
          Name(dtype), block, dim);
    }
  }
  return Status();
}

Result<MemoryProfile> ProfileMemory(const Model& model, CountOps& count, const RunnerShape& shape,
                                    const CacheBudget& budget, const Model* draft) {
  const nn::CacheLayout cache =
      JoinCaches(model.spec().cache, draft ? &draft->spec().cache : nullptr).cache;
  RETURN_IF_ERROR(CheckHeads(cache, shape.kv_dtype));
  MemoryProfile profile;
  profile.weight_bytes = model.spec().weight_bytes;
  RETURN_IF_ERROR(CountStep(model, count, shape, profile));
  const StepShape step = MakeStepShape(shape, cache);
  profile.staging_bytes = (shape.depth + 1) * step.StagingBytes() + step.TableBytes();
  if (draft != nullptr) {
    MemoryProfile drafting;
    RETURN_IF_ERROR(CountStep(*draft, count, shape, drafting));
    // Both models use one arena in turn.
    profile.arena_bytes = std::max(profile.arena_bytes, drafting.arena_bytes);
    profile.staging_bytes += DrafterStagingBytes(*draft, shape);
  }
  if (model.image_encoder() != nullptr && model.spec().stage.first()) {
    ASSIGN_OR_RETURN(profile.encoder_bytes, EncoderBytes(*model.image_encoder(), shape));
  }
  profile.state_bytes = shape.max_seqs * cache.StateBytes();
  profile.block_bytes = KvBlockLayout::Make(cache, shape.block_size, shape.kv_dtype).block_bytes;
  const int64_t host_bytes = budget.host_tier_apart ? 0 : budget.host_cache_bytes;
  const int64_t activations = profile.arena_bytes + profile.encoder_bytes;
  const int64_t fixed = activations + profile.staging_bytes + profile.state_bytes + host_bytes;
  const int64_t free_bytes = budget.available_bytes - fixed;
  const std::string states = profile.state_bytes > 0
                                 ? fmt::format(", states of {} sequences {}", shape.max_seqs,
                                               ByteCount(profile.state_bytes))
                                 : "";

  int64_t blocks = budget.num_blocks;
  if (blocks == 0 && budget.kv_cache_bytes > 0)
    blocks = budget.kv_cache_bytes / profile.block_bytes;
  if (blocks == 0 && budget.kv_cache_bytes == 0) {
    blocks =
        DefaultBlocks(cache, shape, budget, std::max<int64_t>(free_bytes, 0), profile.block_bytes);
  }
  blocks = std::min<int64_t>(blocks, std::numeric_limits<BlockId>::max());
  const auto least = static_cast<int64_t>(cache.groups.size());
  if (blocks < least) {
    return ResourceExhausted(
        "the KV cache would have {} blocks of {}, but at least {} are needed; of {} available, "
        "activations take {}, batches and block tables {}{}, and the host tier {}: lower "
        "max_batch_tokens, max_seqs or max_context, or give the cache more with kv_cache_bytes",
        blocks, ByteCount(profile.block_bytes), least, ByteCount(budget.available_bytes),
        ByteCount(activations), ByteCount(profile.staging_bytes), states, ByteCount(host_bytes));
  }
  if (blocks > free_bytes / profile.block_bytes) {
    return ResourceExhausted(
        "a KV cache of {} blocks takes {}, activations {}, batches and block tables {}{}, and the "
        "host tier {}, but only {} of memory are available: lower num_blocks, kv_cache_bytes, "
        "max_batch_tokens, max_seqs or max_context",
        blocks, ByteCount(blocks * profile.block_bytes), ByteCount(activations),
        ByteCount(profile.staging_bytes), states, ByteCount(host_bytes),
        ByteCount(budget.available_bytes));
  }
  profile.num_device_blocks = static_cast<int32_t>(blocks);
  profile.num_host_blocks = static_cast<int32_t>(std::min<int64_t>(
      budget.host_cache_bytes / profile.block_bytes, std::numeric_limits<BlockId>::max()));
  return profile;
}

}  // namespace tokamak
