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

template <typename Out>
std::vector<Out> Multiply(const Problem& p, SkinnyTile tile, int ctas = 3) {
  const DeviceArray<uint16_t> x(p.x), weight(p.weight);
  const DeviceArray<float> bias(p.bias);
  DeviceArray<Out> out(static_cast<size_t>(p.num_tokens * p.rows));
  const SkinnyGemmArgs args = {.x = x.data(),
                               .weight = weight.data(),
                               .bias = p.bias.empty() ? nullptr : bias.data(),
                               .out = out.data(),
                               .out_bf16 = sizeof(Out) == 2,
                               .num_tokens = p.num_tokens,
                               .rows = p.rows,
                               .cols = p.cols,
                               .x_stride = p.cols,
                               .out_stride = p.rows};
  const CudaTestStream stream;
  EXPECT_EQ(LaunchSkinnyGemm(args, tile, ctas, stream.get()), cudaSuccess);
  return out.Download(stream);
}

class SkinnyGemmTiles : public testing::TestWithParam<SkinnyTile> {};

TEST_P(SkinnyGemmTiles, EveryNumberOfTokensGivesTheBitsOfThePlainChain) {
  const int64_t tokens = GetParam().tokens;
  for (const int64_t num_tokens : {int64_t{1}, tokens - 1, tokens, tokens + 6}) {
    const Problem p = MakeProblem(num_tokens, 72, 456);  // neither a whole tile nor a whole stage
    EXPECT_EQ(Bits(Multiply<float>(p, GetParam())), Bits(Expect(p))) << num_tokens << " tokens";
  }
}

// The stages of a tile are requested while the one before it is multiplied and written.
TEST_P(SkinnyGemmTiles, ManyTilesOfFewStagesGiveTheBitsOfThePlainChain) {
  const Problem p = MakeProblem(GetParam().tokens + 1, GetParam().rows * 7 + 5, 64);
  EXPECT_EQ(Bits(Multiply<float>(p, GetParam(), 1)), Bits(Expect(p)));
}

TEST_P(SkinnyGemmTiles, NanStaysInItsRow) {
  Problem p = MakeProblem(9, 64, 136);
  std::vector<float> expected = Expect(p);
  p.x[static_cast<size_t>(4 * p.cols + 77)] = 0x7fc0;
  ExpectNanInRow(4, Multiply<float>(p, GetParam()), expected, p.rows);
}

INSTANTIATE_TEST_SUITE_P(, SkinnyGemmTiles, testing::ValuesIn(kSkinnyTiles), [](const auto& info) {
  return std::to_string(info.param.rows) + "x" + std::to_string(info.param.tokens);
});

TEST(SkinnyGemm, OutputsAreRoundedToNearestAfterTheBias) {
  const Problem p = MakeProblem(5, 200, 64);
  std::vector<uint16_t> expected;
  for (const float value : Expect(p)) expected.push_back(FloatToBFloat16(value));
  EXPECT_EQ(Multiply<uint16_t>(p, {64, 8}), expected);
}

// A kernel requests its weights while the kernel ahead still writes the tokens that it multiplies.
TEST(SkinnyGemm, AChainOfDependentLaunchesGivesWhatItsProductsGiveOneByOne) {
  constexpr int64_t kSize = 128;
  constexpr SkinnyTile kTiles[] = {{64, 8}, {16, 8}, {64, 64}, {16, 32}, {64, 16}};
  Problem p = MakeProblem(4, kSize, kSize);
  p.bias.clear();
  for (uint16_t& w : p.weight) w = FloatToBFloat16(BFloat16ToFloat(w) / 11);  // keeps the norm
  const DeviceArray<uint16_t> weight(p.weight);
  DeviceArray<uint16_t> y[2] = {DeviceArray<uint16_t>(p.x), DeviceArray<uint16_t>(p.x)};
  const CudaTestStream stream;
  int done = 0;
  for (const SkinnyTile tile : kTiles) {
    const SkinnyGemmArgs args = {.x = y[done % 2].data(),
                                 .weight = weight.data(),
                                 .bias = nullptr,
                                 .out = y[(done + 1) % 2].data(),
                                 .out_bf16 = true,
                                 .num_tokens = p.num_tokens,
                                 .rows = kSize,
                                 .cols = kSize,
                                 .x_stride = kSize,
                                 .out_stride = kSize};
    ASSERT_EQ(LaunchSkinnyGemm(args, tile, 2, stream.get()), cudaSuccess);
    ++done;
  }
  for (int i = 0; i < done; ++i) {
    const std::vector<float> sums = Expect(p);
    for (size_t at = 0; at < sums.size(); ++at) p.x[at] = FloatToBFloat16(sums[at]);
  }
  EXPECT_EQ(y[done % 2].Download(stream), p.x);
}

TEST(SkinnyGemm, UnknownTilesAndRowsThatTmaCannotReadAreRefused) {
  const Problem p = MakeProblem(2, 64, 68);
  const DeviceArray<uint16_t> x(p.x), weight(p.weight);
  DeviceArray<float> out(128);
  SkinnyGemmArgs args = {.x = x.data(),
                         .weight = weight.data(),
                         .bias = nullptr,
                         .out = out.data(),
                         .out_bf16 = false,
                         .num_tokens = 2,
                         .rows = 64,
                         .cols = 68,
                         .x_stride = 68,
                         .out_stride = 64};
  const CudaTestStream stream;
  EXPECT_EQ(LaunchSkinnyGemm(args, {64, 8}, 1, stream.get()), cudaErrorInvalidValue);
  args.cols = args.x_stride = 64;
  EXPECT_EQ(LaunchSkinnyGemm(args, {64, 24}, 1, stream.get()), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace tokamak::cuda
