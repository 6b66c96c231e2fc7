// Products of few tokens: bit by bit what the recipe of skinny_gemm.h gives, written down as one
// plain loop.
#include "ops/cuda/skinny_gemm.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "ops/cuda/testing/bf16_chain.h"
#include "ops/cuda/testing/device_array.h"
#include "quant/half.h"

namespace tokamak::cuda {
namespace {

struct Problem {
  int64_t num_tokens, rows, cols;
  std::vector<uint16_t> x, weight;  // bf16
  std::vector<float> bias;
};

Problem MakeProblem(int64_t num_tokens, int64_t rows, int64_t cols) {
  std::mt19937 random(static_cast<unsigned>(num_tokens + 100 * rows + cols));
  Problem p = {num_tokens,
               rows,
               cols,
               RandomBf16(random, num_tokens * cols),
               RandomBf16(random, rows * cols),
               {}};
  for (int64_t n = 0; n < rows; ++n) p.bias.push_back(static_cast<float>(n % 7) - 3);
  return p;
}

// [num_tokens, rows].
std::vector<float> Expect(const Problem& p) {
  std::vector<float> sums =
      ChainOfProducts(p.x.data(), p.num_tokens, p.weight.data(), p.rows, p.cols);
  for (size_t i = 0; !p.bias.empty() && i < sums.size(); ++i) {
    sums[i] += p.bias[i % static_cast<size_t>(p.rows)];
  }
  return sums;
}

SkinnyGemmArgs ArgsOf(const Problem& p) {
  return {.x = nullptr,
          .weight = nullptr,
          .bias = nullptr,
          .out = nullptr,
          .out_bf16 = false,
          .num_tokens = p.num_tokens,
          .rows = p.rows,
          .cols = p.cols,
          .x_stride = p.cols,
          .out_stride = p.rows};
}

template <typename Out>
std::vector<Out> Multiply(const Problem& p, SkinnyTile tile, KernelForm form, int ctas = 3) {
  const DeviceArray<uint16_t> x(p.x), weight(p.weight);
  const DeviceArray<float> bias(p.bias);
  DeviceArray<Out> out(static_cast<size_t>(p.num_tokens * p.rows));
  SkinnyGemmArgs args = ArgsOf(p);
  args.x = x.data();
  args.weight = weight.data();
  args.bias = p.bias.empty() ? nullptr : bias.data();
  args.out = out.data();
  args.out_bf16 = sizeof(Out) == 2;
  const CudaTestStream stream;
  EXPECT_EQ(LaunchSkinnyGemm(args, tile, ctas, form, stream.get()), cudaSuccess);
  return out.Download(stream);
}

// [num_tokens, stride]: activation(gate) · up of the products, each rounded as kernels of its own
// would, and `rest` in the columns after them.
std::vector<uint16_t> ExpectGated(const Problem& p, Activation activation, int64_t stride,
                                  uint16_t rest) {
  std::vector<float> products = Expect(p);
  for (float& value : products) value = BFloat16ToFloat(FloatToBFloat16(value));
  const std::vector<float> activated =
      activation == Activation::kSilu ? DeviceSilu(products) : DeviceGeluTanh(products);
  const int64_t inner = p.rows / 2;
  std::vector<uint16_t> out;
  for (int64_t t = 0; t < p.num_tokens; ++t) {
    for (int64_t i = 0; i < inner; ++i) {
      const auto gate = static_cast<size_t>(t * p.rows + i);
      out.push_back(FloatToBFloat16(activated[gate] * products[gate + static_cast<size_t>(inner)]));
    }
    out.insert(out.end(), static_cast<size_t>(stride - inner), rest);
  }
  return out;
}

class SkinnyGemmTiles : public testing::TestWithParam<SkinnyTile> {};

TEST_P(SkinnyGemmTiles, EveryNumberOfTokensGivesTheBitsOfThePlainChain) {
  const int64_t tokens = GetParam().tokens;
  for (const int64_t num_tokens : {int64_t{1}, tokens - 1, tokens, tokens + 6}) {
    const Problem p = MakeProblem(num_tokens, 72, 456);  // neither a whole tile nor a whole stage
    const auto expected = Bits(Expect(p));
    for (const KernelForm form : FormsHere()) {
      EXPECT_EQ(Bits(Multiply<float>(p, GetParam(), form)), expected) << num_tokens << " tokens";
    }
  }
}

// The stages of a tile are requested while the one before it is multiplied and written.
TEST_P(SkinnyGemmTiles, ManyTilesOfFewStagesGiveTheBitsOfThePlainChain) {
  const Problem p = MakeProblem(GetParam().tokens + 1, GetParam().rows * 7 + 5, 64);
  for (const KernelForm form : FormsHere()) {
    EXPECT_EQ(Bits(Multiply<float>(p, GetParam(), form, 1)), Bits(Expect(p)));
  }
}

// Gate has 8 rows, which is a part of a tile; whole tiles and a part of one; a part of many. What
// is beside the outputs stays as it is.
TEST_P(SkinnyGemmTiles, TheActivationInTheEpilogueGivesTheBitsOfAKernelOfItsOwn) {
  constexpr uint16_t kRest = 0x1234;
  const int64_t tokens = GetParam().tokens;
  for (const int64_t inner : {int64_t{8}, int64_t{GetParam().rows + 24}, int64_t{40}}) {
    for (const int64_t num_tokens : {int64_t{1}, tokens, tokens + 3}) {
      Problem p = MakeProblem(num_tokens, 2 * inner, 328);
      p.bias.clear();
      const int64_t stride = inner + 5;
      const DeviceArray<uint16_t> x(p.x), weight(p.weight);
      const CudaTestStream stream;
      for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
        const std::vector<uint16_t> expected = ExpectGated(p, activation, stride, kRest);
        for (const KernelForm form : FormsHere()) {
          DeviceArray<uint16_t> out(
              std::vector<uint16_t>(static_cast<size_t>(num_tokens * stride), kRest));
          SkinnyGemmArgs args = ArgsOf(p);
          args.out_bf16 = args.gated = true;
          args.activation = activation;
          args.x = x.data();
          args.weight = weight.data();
          args.out = out.data();
          args.out_stride = stride;
          ASSERT_EQ(LaunchSkinnyGemm(args, GetParam(), 2, form, stream.get()), cudaSuccess);
          EXPECT_EQ(out.Download(stream), expected)
              << num_tokens << " tokens, " << inner << " rows of gate";
        }
      }
    }
  }
}

TEST_P(SkinnyGemmTiles, NanStaysInItsRow) {
  Problem p = MakeProblem(9, 64, 136);
  std::vector<float> expected = Expect(p);
  p.x[static_cast<size_t>(4 * p.cols + 77)] = 0x7fc0;
  for (const KernelForm form : FormsHere()) {
    ExpectNanInRow(4, Multiply<float>(p, GetParam(), form), expected, p.rows);
  }
}

INSTANTIATE_TEST_SUITE_P(, SkinnyGemmTiles, testing::ValuesIn(kSkinnyTiles), [](const auto& info) {
  return std::to_string(info.param.rows) + "x" + std::to_string(info.param.tokens);
});

TEST(SkinnyGemm, OutputsAreRoundedToNearestAfterTheBias) {
  const Problem p = MakeProblem(5, 200, 64);
  std::vector<uint16_t> expected;
  for (const float value : Expect(p)) expected.push_back(FloatToBFloat16(value));
  for (const KernelForm form : FormsHere()) {
    EXPECT_EQ(Multiply<uint16_t>(p, {64, 8}, form), expected);
  }
}

// A kernel requests its weights while the kernel ahead still writes the tokens that it multiplies.
TEST(SkinnyGemm, AChainOfDependentLaunchesGivesWhatItsProductsGiveOneByOne) {
  constexpr int64_t kSize = 128;
  constexpr SkinnyTile kTiles[] = {{64, 8}, {16, 8}, {64, 64}, {16, 32}, {64, 16}};
  Problem p = MakeProblem(4, kSize, kSize);
  p.bias.clear();
  for (uint16_t& w : p.weight) w = FloatToBFloat16(BFloat16ToFloat(w) / 11);  // keeps the norm
  const DeviceArray<uint16_t> weight(p.weight);
  const CudaTestStream stream;
  std::vector<std::vector<uint16_t>> results;
  for (const KernelForm form : FormsHere()) {
    DeviceArray<uint16_t> y[2] = {DeviceArray<uint16_t>(p.x), DeviceArray<uint16_t>(p.x)};
    int done = 0;
    for (const SkinnyTile tile : kTiles) {
      SkinnyGemmArgs args = ArgsOf(p);
      args.x = y[done % 2].data();
      args.weight = weight.data();
      args.out = y[(done + 1) % 2].data();
      args.out_bf16 = true;
      ASSERT_EQ(LaunchSkinnyGemm(args, tile, 2, form, stream.get()), cudaSuccess);
      ++done;
    }
    results.push_back(y[done % 2].Download(stream));
  }
  for (size_t i = 0; i < std::size(kTiles); ++i) {
    const std::vector<float> sums = Expect(p);
    for (size_t at = 0; at < sums.size(); ++at) p.x[at] = FloatToBFloat16(sums[at]);
  }
  for (const auto& result : results) EXPECT_EQ(result, p.x);
}

TEST(SkinnyGemm, UnknownTilesAndRowsThatAreNotAlignedAreRefused) {
  const Problem p = MakeProblem(2, 64, 68);
  const DeviceArray<uint16_t> x(p.x), weight(p.weight);
  DeviceArray<float> out(128);
  SkinnyGemmArgs args = ArgsOf(p);
  args.x = x.data();
  args.weight = weight.data();
  args.out = out.data();
  const CudaTestStream stream;
  for (const KernelForm form : FormsHere()) {
    SkinnyGemmArgs aligned = args;
    aligned.cols = aligned.x_stride = 64;
    EXPECT_EQ(LaunchSkinnyGemm(args, {64, 8}, 1, form, stream.get()), cudaErrorInvalidValue);
    EXPECT_EQ(LaunchSkinnyGemm(aligned, {64, 24}, 1, form, stream.get()), cudaErrorInvalidValue);
  }
}

TEST(SkinnyGemm, WhatCannotBeGatedIsRefused) {
  const Problem p = MakeProblem(1, 48, 64);
  const DeviceArray<uint16_t> x(p.x), weight(p.weight), out(24);
  const DeviceArray<float> bias(p.bias);
  const CudaTestStream stream;
  SkinnyGemmArgs args = ArgsOf(p);
  args.x = x.data();
  args.weight = weight.data();
  args.out = out.data();
  args.out_bf16 = args.gated = true;
  EXPECT_TRUE(FitsGatedSkinnyGemm(args));
  SkinnyGemmArgs part_of_eight = args, f32 = args, biased = args, gelu = args;
  part_of_eight.rows = 40;  // 20 of gate
  f32.out_bf16 = false;
  biased.bias = bias.data();
  gelu.activation = Activation::kGelu;
  for (const SkinnyGemmArgs& changed : {part_of_eight, f32, biased, gelu}) {
    EXPECT_FALSE(FitsGatedSkinnyGemm(changed));
    EXPECT_EQ(LaunchSkinnyGemm(changed, {64, 8}, 1, KernelForm::kAmpere, stream.get()),
              cudaErrorInvalidValue);
  }
}

}  // namespace
}  // namespace tokamak::cuda
