// PackWeight: sizes and errors, on every backend.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "ops/testing/memory_source.h"
#include "ops/testing/op_harness.h"

namespace tokamak {
namespace {

class PackWeightOps : public OpTest {};
INSTANTIATE_TEST_SUITE_P(All, PackWeightOps, ::testing::ValuesIn(OpBackends()), OpBackendName);
class CpuPackWeightOps : public OpTest {};
INSTANTIATE_TEST_SUITE_P(All, CpuPackWeightOps, ::testing::ValuesIn(CpuOpBackends()),
                         OpBackendName);

// A GPU keeps all weights in one type.
TEST_P(CpuPackWeightOps, PackedWeightsAreNoLargerThanTheirFile) {
  const auto ops = Make(2);
  for (const DType dtype : WeightTypes()) {
    const Shape shape{1000, 768};
    const auto source = MemorySource::Random("weight", dtype, shape, 7);
    Result<std::unique_ptr<PackedWeight>> weight = ops->PackWeight({.parts = {source}});
    ASSERT_TRUE(weight.ok());
    EXPECT_LE(static_cast<double>((*weight)->bytes()),
              1.1 * 1000 * static_cast<double>(RowBytes(dtype, 768)))
        << Name(dtype);
    EXPECT_EQ((*weight)->rows(), 1000);
    EXPECT_EQ((*weight)->cols(), 768);
  }
}

class FailingSource final : public WeightSource {
 public:
  const std::string& name() const override { return name_; }
  DType dtype() const override { return DType::kF32; }
  const Shape& shape() const override { return shape_; }
  Status ReadRows(int64_t begin, int64_t, std::byte*) const override {
    return Status(StatusCode::kDataLoss, fmt::format("row {} is gone", begin));
  }

 private:
  std::string name_ = "broken";
  Shape shape_{100000, 64};
};

TEST_P(PackWeightOps, PackWeightReportsTheFirstErrorOfItsSource) {
  const auto ops = Make(2);
  const Result<std::unique_ptr<PackedWeight>> weight =
      ops->PackWeight({.parts = {std::make_shared<FailingSource>()}});
  ASSERT_FALSE(weight.ok());
  EXPECT_EQ(weight.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(weight.status().message()), ::testing::HasSubstr("row 0 is gone"));
}

TEST_P(PackWeightOps, PackWeightNamesAPartThatDoesNotFit) {
  const auto ops = Make(1);
  const auto wide = MemorySource::Random("wide", DType::kF32, {4, 64}, 1);
  const auto narrow = MemorySource::Random("narrow", DType::kF32, {4, 32}, 1);
  const Status status = ops->PackWeight({.parts = {wide, narrow}}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("narrow"));
  EXPECT_FALSE(ops->PackWeight({}).ok());
}

}  // namespace
}  // namespace tokamak
