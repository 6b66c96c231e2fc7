#include "nn/builder.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "nn/linear.h"
#include "nn/testing/bench.h"

namespace tokamak::nn {
namespace {

using testing::Bench;

TEST(Builder, NamesWeightsAsTheCheckpointDoes) {
  Bench bench;
  WeightLoad load = bench.Load({});
  const Builder b = Builder(load) / "model" / "layers" / 7 / "self_attn";
  EXPECT_EQ(b.path(), "model.layers.7.self_attn");
  const SourcePtr source = (b / "q_proj" / "weight").Find(Shape{4, 8});
  ASSERT_NE(source, nullptr);
  EXPECT_EQ(source->name(), "model.layers.7.self_attn.q_proj.weight");
}

TEST(Builder, KeepsTheFirstErrorAndDoesNothingAfterIt) {
  Bench bench;
  WeightLoad load = bench.Load({});
  const Builder b(load);
  (b / "a").Fail(NotFound("first"));
  (b / "b").Fail(NotFound("second"));
  EXPECT_EQ((b / "c").Find(Shape{4}), nullptr);
  EXPECT_EQ((b / "c").ReadVector(4).storage.size(), 0u);
  EXPECT_EQ(b.PackWeight({nullptr}, WeightUse::kLinear), nullptr);
  Linear::Replicated(b / "d", 4, 4, true);
  Linear::Column(b, {{"q", 4, {0, 4}, ""}}, 4, true);
  EXPECT_EQ(load.status.message(), "first");
  EXPECT_EQ(load.spec.num_parameters, 0);
}

TEST(Builder, ReadsRangesOfRowsAndColumns) {
  Bench bench(DType::kQ4_0);
  WeightLoad load = bench.Load({});
  const SourcePtr whole = (Builder(load) / "weight").Find(Shape{6, 96});
  const auto read = [](const WeightSource& source) {
    std::vector<std::byte> bytes(RowBytes(source.dtype(), source.shape().elements()));
    CHECK(source.ReadRows(0, source.shape().rows(), bytes.data()).ok());
    return bytes;
  };
  const std::vector<std::byte> all = read(*whole);
  const size_t block = RowBytes(DType::kQ4_0, 32), row = 3 * block;

  const SourcePtr rows = RowRange(whole, {2, 5});
  EXPECT_EQ(rows->shape(), (Shape{3, 96}));
  EXPECT_EQ(read(*rows), std::vector<std::byte>(all.begin() + 2 * row, all.begin() + 5 * row));

  const SourcePtr cols = Builder(load).Columns(rows, {32, 64});
  ASSERT_TRUE(load.status.ok());
  EXPECT_EQ(cols->shape(), (Shape{3, 32}));
  std::vector<std::byte> expected;
  for (size_t i = 2; i < 5; ++i) {
    expected.insert(expected.end(), all.begin() + i * row + block,
                    all.begin() + i * row + 2 * block);
  }
  EXPECT_EQ(read(*cols), expected);

  EXPECT_EQ(RowRange(whole, {0, 6}), whole);  // the whole range needs no wrapper
}

}  // namespace
}  // namespace tokamak::nn
