#include "ops/count/count_ops.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "ops/testing/memory_source.h"
#include "tensor/arena.h"

namespace tokamak {
namespace {

// A source whose rows must never be read.
class Unreadable final : public WeightSource {
 public:
  explicit Unreadable(DType dtype, Shape shape) : dtype_(dtype), shape_(shape) {}
  const std::string& name() const override { return name_; }
  DType dtype() const override { return dtype_; }
  const Shape& shape() const override { return shape_; }
  Status ReadRows(int64_t, int64_t, std::byte*) const override {
    ADD_FAILURE() << "counting read a weight";
    return Status();
  }

 private:
  std::string name_ = "unreadable";
  DType dtype_;
  Shape shape_;
};

TEST(CountOps, LinearCountsWeightsActivationsAndProducts) {
  const auto ops = MakeCountOps();
  const auto stream = ops->MakeStream();
  auto weight =
      ops->PackWeight({.parts = {std::make_shared<Unreadable>(DType::kQ4_1, Shape{100, 64}),
                                 std::make_shared<Unreadable>(DType::kF16, Shape{10, 64})}});
  ASSERT_TRUE(weight.ok());
  EXPECT_EQ((*weight)->rows(), 110);
  EXPECT_EQ(ops->packed_bytes(), 100 * 2 * 20 + 10 * 64 * 2);

  Arena arena = Arena::Counting();
  Linear op;
  op.x = arena.Allocate(DType::kF32, {7, 64});
  op.weight = weight->get();
  op.out = arena.Allocate(DType::kF32, {7, 110});
  ops->Run(op, *stream);
  ops->Run(op, *stream);
  const OpCount& count = ops->counts()[OpKind::kLinear];
  EXPECT_EQ(count.calls, 2);
  EXPECT_EQ(count.weight_bytes, 2 * ops->packed_bytes());
  EXPECT_EQ(count.other_bytes, 2 * 4 * (7 * 64 + 7 * 110));
  EXPECT_EQ(count.flops, 2 * 2 * 7 * 64 * 110);
  EXPECT_EQ(ops->counts().Total().bytes(), count.bytes());
  ops->Reset();
  EXPECT_EQ(ops->counts().Total().calls, 0);
}

TEST(CountOps, GateUpCountsAsItsParts) {
  const auto ops = MakeCountOps();
  const auto stream = ops->MakeStream();
  auto weight =
      ops->PackWeight({.parts = {std::make_shared<Unreadable>(DType::kBF16, Shape{48, 64}),
                                 std::make_shared<Unreadable>(DType::kBF16, Shape{48, 64})},
                       .use = WeightUse::kInnerLinear});
  ASSERT_TRUE(weight.ok());
  Arena arena = Arena::Counting();
  const Tensor both = arena.Allocate(DType::kF32, {7, 96});
  ops->Run(GateUp{.linear = {.x = arena.Allocate(DType::kF32, {7, 64}),
                             .weight = weight->get(),
                             .bias = {},
                             .out = both},
                  .gate = {.gate_up = both, .out = arena.Allocate(DType::kF32, {7, 48})}},
           *stream);
  const OpCount total = ops->counts().Total();
  EXPECT_EQ(total.calls, 2);
  EXPECT_EQ(total.weight_bytes, 96 * 64 * 2);
  EXPECT_EQ(total.other_bytes, 4 * 7 * (64 + 96) + 4 * 7 * (96 + 48));
  EXPECT_EQ(total.flops, 2 * 7 * 64 * 96);
}

TEST(CountOps, CollectivesCountWhatARankReadsAndWrites) {
  const auto ops = MakeCountOps(&StoredBytes, {.rank = {.size = 2, .rank = 1}});
  const auto stream = ops->MakeStream();
  EXPECT_EQ(ops->rank().rank, 1);
  Arena arena = Arena::Counting();
  ops->Run(AllReduce{.x = arena.Allocate(DType::kF32, {7, 64})}, *stream);
  const std::vector<IndexRange> columns = {{0, 6}, {6, 10}};
  ops->Run(AllGather{.x = arena.Allocate(DType::kF32, {7, 4}),
                     .out = arena.Allocate(DType::kF32, {7, 10}),
                     .columns = columns},
           *stream);
  EXPECT_EQ(ops->counts()[OpKind::kAllReduce].other_bytes, 2 * 4 * 7 * 64);
  EXPECT_EQ(ops->counts()[OpKind::kAllGather].other_bytes, 4 * 7 * (4 + 10));
}

TEST(CountOps, AttentionCountsTheKeysThatItReads) {
  const auto ops = MakeCountOps();
  const auto stream = ops->MakeStream();
  Arena arena = Arena::Counting();
  using Case = std::pair<int, DType>;
  for (const auto& [window, dtype] :
       {Case{0, DType::kF16}, Case{10, DType::kF16}, Case{0, DType::kF8E4M3}}) {
    const AttentionShape shape = {.num_heads = 6,
                                  .num_kv_heads = 2,
                                  .head_dim = 16,
                                  .block_size = 8,
                                  .window = window,
                                  .kv_dtype = dtype,
                                  .bidirectional = true};
    auto plan = ops->MakeAttentionPlan(shape);
    ASSERT_TRUE(plan.ok());
    // A prefill of 4 tokens, and a decode after 49.
    const std::vector<int32_t> query_start_loc = {0, 4, 5}, seq_lens = {4, 50};
    AttentionBatch batch;
    batch.query_start_loc = query_start_loc;
    batch.seq_lens = seq_lens;
    (*plan)->Fill(batch, *stream);
    Attention op;
    op.q = op.out = arena.Allocate(DType::kF32, {5, 96});
    op.cache.dtype = dtype;
    op.cache.num_kv_heads = 2;
    op.cache.head_dim = 16;
    op.plan = plan->get();
    ops->Reset();
    ops->Run(op, *stream);
    const int64_t last = window == 0 ? 50 : 10;
    const OpCount& count = ops->counts()[OpKind::kAttention];
    EXPECT_EQ(count.cache_bytes, 2 * (4 + last) * 2 * 16 * (dtype == DType::kF16 ? 2 : 1));
    EXPECT_EQ(count.flops, 4 * (1 + 2 + 3 + 4 + last) * 6 * 16);
    EXPECT_EQ(count.other_bytes, 2 * 4 * 5 * 96);
    // Three tokens of the prefill see each other.
    const BatchRows range = {1, 4};
    batch.bidirectional = {&range, 1};
    (*plan)->Fill(batch, *stream);
    ops->Reset();
    ops->Run(op, *stream);
    EXPECT_EQ(ops->counts()[OpKind::kAttention].flops, 4 * (1 + 3 * 4 + last) * 6 * 16);
  }
}

TEST(CountOps, DeviceMemoryIsOnlyCounted) {
  const auto ops = MakeCountOps();
  const Result<Buffer> huge = ops->Allocate(size_t{1} << 50, MemoryKind::kDevice);
  ASSERT_TRUE(huge.ok());
  EXPECT_EQ(huge->data(), nullptr);
  EXPECT_EQ(huge->size(), size_t{1} << 50);
  const Result<Buffer> pinned = ops->Allocate(100, MemoryKind::kHostPinned);
  ASSERT_TRUE(pinned.ok());
  EXPECT_NE(pinned->data(), nullptr);
  EXPECT_EQ(ops->allocated_bytes(MemoryKind::kDevice), int64_t{1} << 50);
  EXPECT_EQ(ops->allocated_bytes(MemoryKind::kHostPinned), 100);
}

TEST(CountOps, EveryKindHasAName) {
  for (int i = 0; i < kNumOpKinds; ++i) EXPECT_FALSE(Name(static_cast<OpKind>(i)).empty());
}

}  // namespace
}  // namespace tokamak
