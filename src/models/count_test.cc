// Runs models on the counting backend, as planning does.
#include <gtest/gtest.h>

#include "models/registry.h"
#include "models/testing/backends.h"
#include "models/testing/golden.h"
#include "models/testing/harness.h"
#include "ops/count/count_ops.h"

namespace tokamak::testing {
namespace {

TEST(Count, AStepReadsEachWeightOnceAndNeedsTheArenaOfARealStep) {
  const std::unique_ptr<CountOps> count = MakeCountOps();
  const std::unique_ptr<Model> model = LoadOrDie(GoldenPath("llama_odd.gguf"), *count);
  Harness harness(*model, *count);
  const std::vector<int32_t> tokens(10, 5);
  count->Reset();
  harness.Run(tokens, 3);

  // llama_odd: 3 layers, hidden 66, 6 heads and 3 KV heads of 14, intermediate 101, vocabulary 269.
  const OpCounts& counts = count->counts();
  EXPECT_EQ(counts[OpKind::kEmbed].calls, 1);
  EXPECT_EQ(counts[OpKind::kLinear].calls, 3 * 4 + 1);
  EXPECT_EQ(counts[OpKind::kAddRmsNorm].calls, 3 * 2 + 1);
  EXPECT_EQ(counts[OpKind::kAttention].calls, 3);
  const int64_t layer = 66 * 14 * (6 + 3 + 3 + 6) + 3 * 66 * 101;
  const int64_t output = 269 * 66;
  EXPECT_EQ(counts[OpKind::kLinear].weight_bytes, 4 * (3 * layer + output));
  EXPECT_EQ(counts[OpKind::kLinear].flops, 2 * (10 * 3 * layer + 3 * output));

  const std::unique_ptr<Ops> ops = MakeBackend("reference");
  const std::unique_ptr<Model> real = LoadOrDie(GoldenPath("llama_odd.gguf"), *ops);
  EXPECT_EQ(model->spec().num_parameters, real->spec().num_parameters);
  Harness real_harness(*real, *ops);
  real_harness.Run(tokens, 3);
  EXPECT_EQ(harness.arena_peak(), real_harness.arena_peak());
}

}  // namespace
}  // namespace tokamak::testing
