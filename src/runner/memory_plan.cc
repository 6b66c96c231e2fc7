#include "runner/memory_plan.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace tokamak {
namespace {

// Multiplications by weights that `count` has seen since the last call.
int64_t TakeMacs(CountOps& count) {
  const int64_t macs = count.counts()[OpKind::kLinear].flops / 2;
  count.Reset();
  return macs;
}

// Fills in what a step of max_step_tokens whose every row wants logits takes: the arena's peak, in
// the order in which Runner allocates, and the multiplications of each row.
Status CountStep(const Model& model, CountOps& count, const RunnerShape& shape, MemoryPlan& plan) {
  ASSIGN_OR_RETURN(const std::vector<AttentionShape> attention,
                   AttentionShapes(model.spec().cache, shape));
  const KvBlockLayout layout =
      KvBlockLayout::Make(model.spec().cache, shape.block_size, shape.kv_dtype);
  const int64_t tokens = shape.max_step_tokens;
  std::vector<std::unique_ptr<AttentionPlan>> plans;
  std::vector<nn::PassGroup> groups;
  for (const AttentionShape& group : attention) {
    ASSIGN_OR_RETURN(std::unique_ptr<AttentionPlan> made, count.MakePlan(group));
    groups.push_back({made.get(), Tensor(nullptr, DType::kI64, Shape{tokens})});
    plans.push_back(std::move(made));
  }
  std::vector<KvLayerView> layers;
  for (const nn::KvLayerSpec& layer : model.spec().cache.layers) {
    const KvBlockLayout::Layer& at = layout.layers[layers.size()];
    layers.push_back({.base = nullptr,
                      .block_stride = layout.block_bytes,
                      .k_offset = at.k_offset,
                      .v_offset = at.v_offset,
                      .dtype = shape.kv_dtype,
                      .block_size = shape.block_size,
                      .num_kv_heads = layer.num_kv_heads,
                      .head_dim = layer.head_dim});
  }
  const std::unique_ptr<Stream> stream = count.MakeStream();
  Arena arena = Arena::Counting();
  nn::Pass pass{.ops = count,
                .stream = *stream,
                .arena = arena,
                .token_ids = Tensor(nullptr, DType::kI32, Shape{tokens}),
                .positions = Tensor(nullptr, DType::kI32, Shape{tokens}),
                .groups = groups,
                .kv_layers = layers,
                .logit_rows = Tensor(nullptr, DType::kI32, Shape{tokens})};
  count.Reset();
  const Tensor hidden = model.Forward(pass);
  plan.token_macs = TakeMacs(count) / tokens;
  {
    const int64_t rows = std::min<int64_t>(tokens, kScoredRowsAtOnce);
    ArenaScope scope(arena);
    (void)model.Logits(pass, hidden.Rows(0, rows));
    plan.logits_macs = TakeMacs(count) / rows;
  }
  (void)model.Logits(pass, hidden.Rows(0, std::min<int64_t>(tokens, shape.max_slots)));
  plan.arena_bytes = static_cast<int64_t>(arena.peak());
  return Status();
}

// Blocks for one sequence of `positions` in every group.
int64_t BlocksFor(int64_t positions, const nn::CacheLayout& cache, const RunnerShape& shape) {
  return (positions + shape.block_size - 1) / shape.block_size *
         static_cast<int64_t>(cache.groups.size());
}

// "12.3 MB".
std::string Size(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 1'000'000) return fmt::format("{:.1f} KB", value / 1e3);
  if (bytes < 1'000'000'000) return fmt::format("{:.1f} MB", value / 1e6);
  return fmt::format("{:.2f} GB", value / 1e9);
}

int64_t DefaultBlocks(const nn::CacheLayout& cache, const RunnerShape& shape,
                      const CacheBudget& budget, int64_t free_bytes, int64_t block_bytes) {
  const int64_t wanted =
      std::max(BlocksFor(shape.max_context, cache, shape),
               shape.max_slots *
                   BlocksFor(std::min(shape.max_context, budget.default_positions), cache, shape));
  const auto affordable =
      static_cast<int64_t>(static_cast<double>(free_bytes) * budget.default_fraction) / block_bytes;
  return std::min(wanted, affordable);
}

}  // namespace

Result<std::vector<AttentionShape>> AttentionShapes(const nn::CacheLayout& cache,
                                                    const RunnerShape& shape) {
  std::vector<AttentionShape> shapes(cache.groups.size());
  for (const nn::KvLayerSpec& layer : cache.layers) {
    AttentionShape& group = shapes[static_cast<size_t>(layer.group)];
    if (group.num_heads == 0) {
      group = {.num_heads = layer.num_heads,
               .num_kv_heads = layer.num_kv_heads,
               .head_dim = layer.head_dim,
               .block_size = shape.block_size,
               .window = cache.groups[static_cast<size_t>(layer.group)].window,
               .kv_dtype = shape.kv_dtype,
               .max_seqs = shape.max_slots,
               .max_tokens = shape.max_step_tokens,
               .max_blocks_per_seq = (shape.max_context + shape.block_size - 1) / shape.block_size};
    } else if (group.num_heads != layer.num_heads || group.num_kv_heads != layer.num_kv_heads ||
               group.head_dim != layer.head_dim) {
      return Unimplemented("the layers of cache group {} have different head shapes", layer.group);
    }
  }
  return shapes;
}

// A row of the cache is a whole number of its type's blocks.
Status CheckHeads(const nn::CacheLayout& cache, DType dtype) {
  const int block = Info(dtype).block_elements;
  for (const nn::KvLayerSpec& layer : cache.layers) {
    if (layer.head_dim % block != 0) {
      return InvalidArgument(
          "--kv-cache-dtype: {} needs heads of a multiple of {} elements, this model's have {}",
          Name(dtype), block, layer.head_dim);
    }
  }
  return Status();
}

Result<MemoryPlan> PlanMemory(const Model& model, CountOps& count, const RunnerShape& shape,
                              const CacheBudget& budget) {
  const nn::CacheLayout& cache = model.spec().cache;
  RETURN_IF_ERROR(CheckHeads(cache, shape.kv_dtype));
  MemoryPlan plan;
  plan.weight_bytes = model.spec().weight_bytes;
  RETURN_IF_ERROR(CountStep(model, count, shape, plan));
  const FlightShape flight = MakeFlightShape(shape, cache);
  plan.staging_bytes = (shape.depth + 1) * flight.StagingBytes() + flight.TableBytes();
  plan.block_bytes = KvBlockLayout::Make(cache, shape.block_size, shape.kv_dtype).block_bytes;
  const int64_t host_bytes = budget.host_tier_apart ? 0 : budget.host_cache_bytes;
  const int64_t fixed = plan.arena_bytes + plan.staging_bytes + host_bytes;
  const int64_t free_bytes = budget.available_bytes - fixed;

  int64_t blocks = budget.num_blocks;
  if (blocks == 0 && budget.kv_cache_bytes > 0) blocks = budget.kv_cache_bytes / plan.block_bytes;
  if (blocks == 0 && budget.kv_cache_bytes == 0) {
    blocks =
        DefaultBlocks(cache, shape, budget, std::max<int64_t>(free_bytes, 0), plan.block_bytes);
  }
  blocks = std::min<int64_t>(blocks, std::numeric_limits<BlockId>::max());
  const auto least = static_cast<int64_t>(cache.groups.size());
  if (blocks < least) {
    return ResourceExhausted(
        "the KV cache would have {} blocks of {}, and {} are needed to make any progress; of {} "
        "available, activations take {}, batches and block tables {} and the host tier {}: lower "
        "--max-batch-tokens, --max-seqs or --max-context, or give the cache more with "
        "--kv-cache-memory",
        blocks, Size(plan.block_bytes), least, Size(budget.available_bytes), Size(plan.arena_bytes),
        Size(plan.staging_bytes), Size(host_bytes));
  }
  if (blocks > free_bytes / plan.block_bytes) {
    return ResourceExhausted(
        "a KV cache of {} blocks takes {}, activations {}, batches and block tables {} and the "
        "host tier {}, but {} of memory are available: lower --num-blocks, --kv-cache-memory, "
        "--max-batch-tokens, --max-seqs or --max-context",
        blocks, Size(blocks * plan.block_bytes), Size(plan.arena_bytes), Size(plan.staging_bytes),
        Size(host_bytes), Size(budget.available_bytes));
  }
  plan.num_device_blocks = static_cast<int32_t>(blocks);
  plan.num_host_blocks = static_cast<int32_t>(std::min<int64_t>(
      budget.host_cache_bytes / plan.block_bytes, std::numeric_limits<BlockId>::max()));
  return plan;
}

}  // namespace tokamak
