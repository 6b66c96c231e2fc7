// Runs the AMX kernels on emulated tiles, which proves on any AVX-512 machine that they find their
// operands. On machines with AMX, the ISA's own tests prove that the emulation is right.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "base/testing/sanitizers.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/panel_weight.h"
#include "ops/testing/bf16_recipes.h"
#include "ops/testing/emulated_amx.h"
#include "ops/testing/memory_source.h"
#include "ops/testing/op_harness.h"

namespace tokamak::cpu {
namespace {

class EmulatedAmx : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<IsaKernels> vnni = ChooseKernels("avx512vnni");
    if (!vnni.ok()) GTEST_SKIP() << vnni.status().ToString();
    vnni_ = *vnni;
    amx_ = {.name = "amx_emulated",
            .kernels = vnni_.kernels,
            .int8 = EmulatedAmxInt8Kernels(),
            .bf16 = EmulatedAmxBf16Kernels()};
  }

  std::unique_ptr<PackedWeight> PackWeight(const IsaKernels& isa,
                                           std::shared_ptr<const WeightSource> source) {
    auto weight = PanelWeight::Make({.parts = {std::move(source)}}, isa, memory_, pool_);
    CHECK_MSG(weight.ok(), weight.status().ToString());
    return *std::move(weight);
  }

  // Multiplies the first num_tokens rows of x [..., cols].
  std::vector<float> Run(const IsaKernels& isa, const PackedWeight& weight,
                         const std::vector<float>& x, int64_t num_tokens, std::vector<float> bias) {
    const size_t row_bytes = RowBytes(weight.activation(), weight.cols());
    std::vector<std::byte> rows(row_bytes * static_cast<size_t>(num_tokens));
    for (int64_t t = 0; t < num_tokens; ++t) {
      QuantizeRow(weight.activation(), x.data() + t * weight.cols(), weight.cols(),
                  rows.data() + static_cast<size_t>(t) * row_bytes);
    }
    std::vector<float> out(static_cast<size_t>(num_tokens * weight.rows()), NAN);
    Linear op;
    op.x = Tensor(rows.data(), weight.activation(), {num_tokens, weight.cols()});
    op.weight = &weight;
    op.bias = Tensor(bias.data(), DType::kF32, {weight.rows()});
    op.out = Tensor(out.data(), DType::kF32, {num_tokens, weight.rows()});
    RunLinear(isa, pool_, nullptr, packed_, op);
    return out;
  }

  IsaKernels vnni_, amx_;
  WeightMemory memory_;
  ThreadPool pool_{2};
  PackedRows packed_{2};
};

TEST_F(EmulatedAmx, Int8GivesTheBitsOfVnni) {
  std::mt19937_64 random(1);
  const int64_t rows = 150, cols = 1280;
  const std::vector<float> x = RandomFloats(random, 150 * cols), bias = RandomFloats(random, rows);
  std::vector<int64_t> counts = {1, 7, 17, 65};
  if (!testing::kSanitized) counts = {1, 6, 7, 16, 17, 22, 23, 63, 64, 65, 128, 150};
  for (const DType dtype : WeightTypes()) {
    if (!IsBlockType(dtype)) continue;
    const auto source = MemorySource::Random("weight", dtype, {rows, cols}, random());
    const auto weight = PackWeight(amx_, source);
    ASSERT_EQ(weight->activation(), DType::kI8Blocks);
    for (const int64_t num_tokens : counts) {
      EXPECT_TRUE(SameBits(Run(amx_, *weight, x, num_tokens, bias),
                           Run(vnni_, *weight, x, num_tokens, bias)))
          << Name(dtype) << ", " << num_tokens << " tokens";
    }
  }
}

// Numbers of groups (1, 2, 3, 5, 33) that are no multiples of the number of products in progress;
// 33 are two pieces and one group.
TEST_F(EmulatedAmx, Int8OfFewColumns) {
  std::mt19937_64 random(2);
  const int64_t rows = 33, num_tokens = 20;
  for (const int64_t cols : {32, 64, 96, 160, 1056}) {
    const std::vector<float> x = RandomFloats(random, num_tokens * cols);
    const std::vector<float> bias = RandomFloats(random, rows);
    for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
      const auto weight =
          PackWeight(amx_, MemorySource::Random("weight", dtype, {rows, cols}, random()));
      EXPECT_TRUE(SameBits(Run(amx_, *weight, x, num_tokens, bias),
                           Run(vnni_, *weight, x, num_tokens, bias)))
          << Name(dtype) << ", " << cols << " columns";
    }
  }
}

TEST_F(EmulatedAmx, Bf16FollowsItsRecipeInEveryBatch) {
  std::mt19937_64 random(3);
  for (const auto& [rows, cols] :
       std::vector<std::pair<int64_t, int64_t>>{{150, 1331}, {16, 31}, {81, 512}, {40, 1}}) {
    const std::vector<float> x = RandomFloats(random, 70 * cols);
    const std::vector<float> bias = RandomFloats(random, rows);
    const auto source = MemorySource::Random("weight", DType::kBF16, {rows, cols}, random());
    const std::vector<float> w = source->Dequantized(), rounded = RoundTo(DType::kBF16, x);
    std::vector<float> expected;
    for (int64_t t = 0; t < 70; ++t) {
      for (int64_t n = 0; n < rows; ++n) {
        const float sum = AmxBf16Sum(w.data() + n * cols, rounded.data() + t * cols, cols);
        expected.push_back(sum + bias[static_cast<size_t>(n)]);
      }
    }
    const auto weight = PackWeight(amx_, source);
    ASSERT_EQ(weight->activation(), DType::kBF16);
    for (const int64_t num_tokens : {1, 2, 15, 16, 17, 31, 32, 33, 48, 70}) {
      EXPECT_TRUE(SameBits(Run(amx_, *weight, x, num_tokens, bias),
                           {expected.begin(), expected.begin() + num_tokens * rows}))
          << rows << "x" << cols << ", " << num_tokens << " tokens";
    }
  }
}

}  // namespace
}  // namespace tokamak::cpu
