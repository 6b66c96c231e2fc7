// FlashInfer's attention on a GPU, against the reference.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "ops/reference/reference_ops.h"
#include "ops/testing/attention_case.h"

namespace tokamak::attention_test {
namespace {

class FlashInferOps : public OpTest {};
INSTANTIATE_TEST_SUITE_P(Cuda, FlashInferOps, ::testing::ValuesIn(FlashInferCudaBackend()),
                         OpBackendName);

TEST_P(FlashInferOps, AttentionMatchesTheReference) {
  std::mt19937_64 random(1);
  const auto ops = Make(1);
  const auto reference = MakeReferenceOps();
  WorstError worst(fmt::format("{} attention", ops->name()));
  const std::vector<std::vector<SequenceShape>> batches = {
      MixedBatch(),
      {{1, 1}, {300, 1}, {5000, 1}, {64, 1}},    // decoding, with long and short sequences
      std::vector<SequenceShape>(300, {40, 1}),  // more sequences than CTAs
      {{700, 700}, {129, 129}},                  // prompts
      {{4000, 3}},                               // few rows, so the keys are split
      {{2500, 60}, {30, 1}},
  };
  for (const int head_dim : {64, 128}) {
    for (const auto& [heads, kv_heads] : {std::pair(4, 2), std::pair(2, 2), std::pair(7, 1)}) {
      for (size_t b = 0; b < batches.size(); ++b) {
        const Geometry g = {.num_heads = heads,
                            .num_kv_heads = kv_heads,
                            .head_dim = head_dim,
                            .block_size = b % 2 == 0 ? 16 : 5,
                            .dtype = DType::kBF16};
        AttentionCase c = RandomCase(random, g, batches[b]);
        c.q = RoundTo(DType::kBF16, c.q);
        c.q_type = c.out_type = DType::kBF16;
        c.wants_lse = false;
        CheckAttention(*ops, *reference, c, worst,
                       fmt::format("{}/{} heads of {}, batch {}", heads, kv_heads, head_dim, b));
      }
    }
  }
}

TEST_P(FlashInferOps, AnEmptyBatchIsNoWork) {
  std::mt19937_64 random(2);
  const auto ops = Make(1);
  AttentionCase c = RandomCase(random, {.dtype = DType::kBF16}, {});
  c.q_type = c.out_type = DType::kBF16;
  c.wants_lse = false;
  EXPECT_TRUE(RunAttention(*ops, c).out.empty());
}

TEST_P(FlashInferOps, RefusesAttentionThatTheKernelsDoNotSupport) {
  const auto ops = Make(1);
  const AttentionShape good = {.num_heads = 4,
                               .num_kv_heads = 2,
                               .head_dim = 128,
                               .block_size = 16,
                               .kv_dtype = DType::kBF16,
                               .max_seqs = 8,
                               .max_tokens = 64,
                               .max_blocks_per_seq = 4};
  EXPECT_TRUE(ops->MakeAttentionPlan(good).ok());
  const auto refuses = [&](void (*change)(AttentionShape&), const char* reason) {
    AttentionShape shape = good;
    change(shape);
    const Status status = ops->MakeAttentionPlan(shape).status();
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << reason;
    EXPECT_THAT(status.ToString(), ::testing::HasSubstr("attention=flashinfer"));
    EXPECT_THAT(status.ToString(), ::testing::HasSubstr(reason));
  };
  refuses([](AttentionShape& s) { s.head_dim = 96; }, "heads of 96");
  refuses([](AttentionShape& s) { s.value_dim = 64; }, "values unlike");
  refuses([](AttentionShape& s) { s.kv_dtype = DType::kF16; }, "a KV cache of F16");
  refuses([](AttentionShape& s) { s.window = 100; }, "window of 100");
  refuses([](AttentionShape& s) { s.causal = false; }, "attention that is not causal");
  refuses([](AttentionShape& s) { s.bidirectional = true; }, "attention that is not causal");
  refuses([](AttentionShape& s) { s.max_blocks_per_seq = 1 << 28; }, "--max-context");
  EXPECT_FALSE(ops->capabilities().Has(Capability::kSinks));
}

}  // namespace
}  // namespace tokamak::attention_test
