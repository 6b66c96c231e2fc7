#include "runner/counting_pass.h"

#include "base/error.h"
#include "runner/attention_shapes.h"
#include "runner/kv_pool.h"

namespace tokamak {

CountingPass::CountingPass(CountOps& count, int64_t num_tokens, int64_t num_logits)
    : stream_(count.MakeStream()),
      pass_{.ops = count,
            .stream = *stream_,
            .arena = arena_,
            .token_ids = Tensor(nullptr, DType::kI32, Shape{num_tokens}),
            .positions = Tensor(nullptr, DType::kI32, Shape{num_tokens}),
            .groups = {},
            .kv_layers = {},
            .logit_rows = Tensor(nullptr, DType::kI32, Shape{num_logits})} {}

Result<std::unique_ptr<CountingPass>> CountingPass::Make(const nn::CacheLayout& cache,
                                                         CountOps& count, const RunnerShape& shape,
                                                         int64_t num_tokens, int64_t num_logits) {
  std::unique_ptr<CountingPass> result(new CountingPass(count, num_tokens, num_logits));
  ASSIGN_OR_RETURN(const std::vector<AttentionShape> attention, AttentionShapes(cache, shape));
  for (const AttentionShape& group : attention) {
    ASSIGN_OR_RETURN(std::unique_ptr<AttentionPlan> plan, count.MakeAttentionPlan(group));
    result->groups_.push_back({plan.get(), Tensor(nullptr, DType::kI64, Shape{num_tokens})});
    result->plans_.push_back(std::move(plan));
  }
  const KvBlockLayout layout = KvBlockLayout::Make(cache, shape.block_size, shape.kv_dtype);
  for (size_t i = 0; i < cache.layers.size(); ++i) {
    result->layers_.push_back(layout.View(cache, i, shape.block_size, shape.kv_dtype));
  }
  result->state_layers_ = cache.StateViews(nullptr);
  result->pass_.state_layers = result->state_layers_;
  result->pass_.groups = result->groups_;
  result->pass_.kv_layers = result->layers_;
  return result;
}

void CountingPass::Fill(std::span<const int32_t> query_start_loc,
                        std::span<const int32_t> seq_lens) {
  pass_.states.query_start_loc = query_start_loc;
  pass_.states.seq_lens = seq_lens;
  for (const auto& plan : plans_) {
    plan->Fill({.query_start_loc = query_start_loc,
                .seq_lens = seq_lens,
                .device_query_start_loc = {},
                .device_seq_lens = {},
                .table_rows = {},
                .block_tables = {}},
               *stream_);
  }
}

}  // namespace tokamak
