// Products of groups of rows: bit by bit the recipe of grouped_gemm.h, group by group.
#include "ops/cuda/grouped_gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "ops/cuda/testing/bf16_chain.h"
#include "ops/cuda/testing/device_array.h"
#include "ops/cuda/testing/device_math.h"
#include "quant/half.h"

namespace tokamak::cuda {
namespace {

struct Problem {
  std::vector<int32_t> offsets;
  int64_t rows, cols;
  std::vector<uint16_t> x, weights;  // bf16
  std::vector<float> bias;

  int64_t groups() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t num_rows() const { return offsets.back(); }
};

Problem MakeProblem(const std::vector<int32_t>& lengths, int64_t rows, int64_t cols) {
  Problem p;
  p.offsets.push_back(0);
  for (const int32_t length : lengths) p.offsets.push_back(p.offsets.back() + length);
  p.rows = rows;
  p.cols = cols;
  std::mt19937 random(static_cast<unsigned>(p.num_rows() + 100 * rows + cols));
  p.x = RandomBf16(random, p.num_rows() * cols);
  p.weights = RandomBf16(random, p.groups() * rows * cols);
  for (int64_t n = 0; n < p.groups() * rows; ++n) p.bias.push_back(static_cast<float>(n % 7) - 3);
  return p;
}

// [num_rows, rows].
std::vector<float> Expect(const Problem& p) {
  std::vector<float> out;
  for (int64_t g = 0; g < p.groups(); ++g) {
    const int64_t begin = p.offsets[static_cast<size_t>(g)];
    const int64_t count = p.offsets[static_cast<size_t>(g + 1)] - begin;
    std::vector<float> sums = ChainOfProducts(
        p.x.data() + begin * p.cols, count, p.weights.data() + g * p.rows * p.cols, p.rows, p.cols);
    for (size_t i = 0; !p.bias.empty() && i < sums.size(); ++i) {
      sums[i] += p.bias[static_cast<size_t>(g * p.rows) + i % static_cast<size_t>(p.rows)];
    }
    out.insert(out.end(), sums.begin(), sums.end());
  }
  return out;
}

GroupedLinearArgs ArgsOf(const Problem& p) {
  return {.x = nullptr,
          .weights = nullptr,
          .offsets = nullptr,
          .bias = nullptr,
          .out = nullptr,
          .num_rows = p.num_rows(),
          .rows = p.rows,
          .cols = p.cols,
          .x_stride = p.cols,
          .out_stride = p.rows,
          .groups = static_cast<int32_t>(p.groups()),
          .bf16 = true,
          .out_bf16 = false};
}

template <typename Out>
std::vector<Out> Multiply(const Problem& p, GroupedTileShape tile, KernelForm form, int ctas = 3,
                          bool gated = false) {
  const DeviceArray<uint16_t> x(p.x), weights(p.weights);
  const DeviceArray<int32_t> offsets(p.offsets);
  const DeviceArray<float> bias(p.bias);
  GroupedLinearArgs args = ArgsOf(p);
  args.gated = gated;
  args.out_stride = gated ? p.rows / 2 : p.rows;
  DeviceArray<Out> out(static_cast<size_t>(p.num_rows() * args.out_stride));
  args.x = x.data();
  args.weights = weights.data();
  args.offsets = offsets.data();
  args.bias = p.bias.empty() ? nullptr : bias.data();
  args.out = out.data();
  args.out_bf16 = sizeof(Out) == 2;
  const CudaTestStream stream;
  EXPECT_EQ(LaunchGroupedGemm(args, tile, ctas, form, stream.get()), cudaSuccess);
  return out.Download(stream);
}

// [num_rows, rows / 2]: silu(gate) · up of the products, each rounded as kernels of its own would.
std::vector<uint16_t> ExpectGated(const Problem& p) {
  std::vector<float> products = Expect(p);
  for (float& value : products) value = BFloat16ToFloat(FloatToBFloat16(value));
  const std::vector<float> activated = DeviceSilu(products);
  std::vector<uint16_t> out;
  for (int64_t r = 0; r < p.num_rows(); ++r) {
    for (int64_t i = 0; i < p.rows / 2; ++i) {
      const auto gate = static_cast<size_t>(r * p.rows + i);
      out.push_back(
          FloatToBFloat16(activated[gate] * products[gate + static_cast<size_t>(p.rows / 2)]));
    }
  }
  return out;
}

// The forms in which the tile can run here.
std::vector<KernelForm> FormsOf(GroupedTileShape tile) {
  std::vector<KernelForm> forms = FormsHere();
  if (tile == kWideGroupedTile) std::erase(forms, KernelForm::kAmpere);
  return forms;
}

class GroupedGemmTiles : public testing::TestWithParam<GroupedTileShape> {};

// Rows of a weight and columns that are neither whole tiles nor whole stages; groups without rows
// at both ends and in the middle, of one row, and of a few more rows than a tile has.
TEST_P(GroupedGemmTiles, EveryGroupGivesTheBitsOfThePlainChain) {
  const int32_t tokens = GetParam().tokens;
  const Problem p = MakeProblem({0, 1, tokens, 0, 0, tokens + 3, 2, 0}, 72, 200);
  const auto expected = Bits(Expect(p));
  for (const KernelForm form : FormsOf(GetParam())) {
    EXPECT_EQ(Bits(Multiply<float>(p, GetParam(), form)), expected);
  }
}

// The stages of a tile are requested while the one before it is multiplied and written.
TEST_P(GroupedGemmTiles, ManyTilesOfFewStagesGiveTheBitsOfThePlainChain) {
  const int64_t rest = GetParam() == kWideGroupedTile ? 8 : 5;  // wide needs a multiple of 8
  const Problem p = MakeProblem({3, GetParam().tokens + 1, 1}, GetParam().rows * 2 + rest, 64);
  const auto expected = Bits(Expect(p));
  for (const KernelForm form : FormsOf(GetParam())) {
    EXPECT_EQ(Bits(Multiply<float>(p, GetParam(), form, 1)), expected);
  }
}

// Stages are requested again and again while products read others.
TEST_P(GroupedGemmTiles, TilesOfManyStagesGiveTheBitsOfThePlainChain) {
  const Problem p = MakeProblem({3, GetParam().tokens + 1}, 24, 1032);
  const auto expected = Bits(Expect(p));
  for (const KernelForm form : FormsOf(GetParam())) {
    EXPECT_EQ(Bits(Multiply<float>(p, GetParam(), form, 2)), expected);
  }
}

// Gate has 8 rows, which is a part of a tile; whole tiles and a part of one; a part of two.
TEST_P(GroupedGemmTiles, TheActivationInTheEpilogueGivesTheBitsOfKernelsOfTheirOwn) {
  const int32_t tokens = GetParam().tokens;
  for (const int64_t inner : {int64_t{8}, int64_t{GetParam().rows + 24}, int64_t{40}}) {
    const Problem p = MakeProblem({0, 1, tokens + 3, 0, 2, 0}, 2 * inner, 200);
    const std::vector<uint16_t> with_bias = ExpectGated(p);
    Problem without = p;
    without.bias.clear();
    const std::vector<uint16_t> expected = ExpectGated(without);
    for (const KernelForm form : FormsOf(GetParam())) {
      EXPECT_EQ(Multiply<uint16_t>(p, GetParam(), form, 3, /*gated=*/true), with_bias) << inner;
      EXPECT_EQ(Multiply<uint16_t>(without, GetParam(), form, 1, /*gated=*/true), expected)
          << inner;
    }
  }
}

TEST_P(GroupedGemmTiles, OneRowOfXServesAllGroupsThatHaveARow) {
  Problem p = MakeProblem({0, 1, 1, 0, 1}, 80, 136);
  p.bias.clear();
  const std::vector<uint16_t> row(p.x.begin(), p.x.begin() + p.cols);
  for (int64_t r = 1; r < p.num_rows(); ++r)
    std::copy(row.begin(), row.end(), p.x.begin() + r * p.cols);
  const DeviceArray<uint16_t> x(row), weights(p.weights);
  const DeviceArray<int32_t> offsets(p.offsets);
  DeviceArray<uint16_t> out(static_cast<size_t>(p.num_rows() * p.rows / 2));
  GroupedLinearArgs args = ArgsOf(p);
  args.x = x.data();
  args.weights = weights.data();
  args.offsets = offsets.data();
  args.out = out.data();
  args.out_stride = p.rows / 2;
  args.out_bf16 = args.gated = args.one_row = true;
  const CudaTestStream stream;
  const std::vector<uint16_t> expected = ExpectGated(p);
  for (const KernelForm form : FormsOf(GetParam())) {
    ASSERT_EQ(cudaMemsetAsync(out.data(), 0, out.size() * 2, stream.get()), cudaSuccess);
    ASSERT_EQ(LaunchGroupedGemm(args, GetParam(), 2, form, stream.get()), cudaSuccess);
    EXPECT_EQ(out.Download(stream), expected);
  }
}

TEST_P(GroupedGemmTiles, NanStaysInItsRow) {
  Problem p = MakeProblem({2, 5, 2}, 64, 136);
  const std::vector<float> expected = Expect(p);
  p.x[static_cast<size_t>(4 * p.cols + 77)] = 0x7fc0;
  for (const KernelForm form : FormsOf(GetParam())) {
    ExpectNanInRow(4, Multiply<float>(p, GetParam(), form), expected, p.rows);
  }
}

INSTANTIATE_TEST_SUITE_P(, GroupedGemmTiles, testing::ValuesIn(kGroupedTiles),
                         [](const auto& info) {
                           return std::to_string(info.param.rows) + "x" +
                                  std::to_string(info.param.tokens);
                         });

TEST(GroupedGemm, OutputsAreRoundedToNearestAfterTheBias) {
  const auto expect_rounded = [](const Problem& p, GroupedTileShape tile) {
    std::vector<uint16_t> expected;
    for (const float value : Expect(p)) expected.push_back(FloatToBFloat16(value));
    for (const KernelForm form : FormsOf(tile)) {
      EXPECT_EQ(Multiply<uint16_t>(p, tile, form), expected);
    }
  };
  expect_rounded(MakeProblem({4, 0, 9}, 100, 64), {64, 8});
  expect_rounded(MakeProblem({4, 0, 9}, 104, 64), kWideGroupedTile);
}

// Groups of 8 and 7 blocks of 64 tokens, in three tiles each, and three tiles of rows, one of them
// a part. With one CTA, a tile of few blocks is behind one of many, and the other way round.
TEST(WideGroupedGemm, BlocksOfTokensAreSpreadOverTiles) {
  const Problem p = MakeProblem({64 * 7 + 5, 0, 64 * 5, 1}, 256 + 16, 72);
  for (const KernelForm form : FormsOf(kWideGroupedTile)) {
    EXPECT_EQ(Bits(Multiply<float>(p, kWideGroupedTile, form, 2)), Bits(Expect(p)));
  }
}

// More groups than a warp has lanes, most of them empty.
TEST(GroupedGemm, ManyGroups) {
  std::vector<int32_t> lengths(150);
  lengths[0] = lengths[31] = lengths[64] = lengths[149] = 1;
  lengths[100] = 17;
  Problem p = MakeProblem(lengths, 16, 16);
  p.bias.clear();
  for (const KernelForm form : FormsHere()) {
    EXPECT_EQ(Bits(Multiply<float>(p, {64, 16}, form, 2)), Bits(Expect(p)));
  }
}

// `offsets` and the rows of x come from a kernel that lets this one begin before it writes.
TEST(GroupedGemm, AChainOfDependentLaunchesGivesWhatItsProductsGiveOneByOne) {
  constexpr int64_t kSize = 64;
  Problem first = MakeProblem({3, 9}, kSize, kSize);
  first.bias.clear();
  for (uint16_t& w : first.weights) w = FloatToBFloat16(BFloat16ToFloat(w) / 8);  // keeps the norm
  const DeviceArray<uint16_t> weights(first.weights);
  const DeviceArray<uint32_t> words(
      std::vector<uint32_t>(first.offsets.begin(), first.offsets.end()));
  std::vector<int32_t> at(first.offsets.size());
  std::iota(at.begin(), at.end(), 0);
  const DeviceArray<int32_t> places(at);
  const CudaTestStream stream;
  for (const KernelForm form : FormsHere()) {
    Problem p = first;
    const DeviceArray<int32_t> offsets(std::vector<int32_t>(p.offsets.size()));
    DeviceArray<uint16_t> y[2] = {DeviceArray<uint16_t>(p.x), DeviceArray<uint16_t>(p.x)};
    StoreLate(places, words, reinterpret_cast<uint32_t*>(offsets.data()), stream);
    int done = 0;
    for (const GroupedTileShape tile : kGroupedTiles) {
      if (tile == kWideGroupedTile && form == KernelForm::kAmpere) continue;
      GroupedLinearArgs args = ArgsOf(p);
      args.x = y[done % 2].data();
      args.weights = weights.data();
      args.offsets = offsets.data();
      args.out = y[(done + 1) % 2].data();
      args.out_bf16 = true;
      ASSERT_EQ(LaunchGroupedGemm(args, tile, 2, form, stream.get()), cudaSuccess);
      ++done;
    }
    for (int i = 0; i < done; ++i) {
      const std::vector<float> sums = Expect(p);
      for (size_t j = 0; j < sums.size(); ++j) p.x[j] = FloatToBFloat16(sums[j]);
    }
    EXPECT_EQ(y[done % 2].Download(stream), p.x);
  }
}

TEST(GroupedGemm, UnknownTilesAndRowsThatAreNotAlignedAreRefused) {
  const Problem p = MakeProblem({2}, 64, 68);
  const DeviceArray<uint16_t> x(p.x), weights(p.weights);
  const DeviceArray<int32_t> offsets(p.offsets);
  DeviceArray<float> out(128);
  const CudaTestStream stream;
  for (const KernelForm form : FormsHere()) {
    GroupedLinearArgs args = ArgsOf(p);
    args.x = x.data();
    args.weights = weights.data();
    args.offsets = offsets.data();
    args.out = out.data();
    EXPECT_EQ(LaunchGroupedGemm(args, {64, 8}, 1, form, stream.get()), cudaErrorInvalidValue);
    args.cols = args.x_stride = 64;
    EXPECT_EQ(LaunchGroupedGemm(args, {64, 24}, 1, form, stream.get()), cudaErrorInvalidValue);
    args.gated = args.out_bf16 = true;
    args.rows = 56;  // 28 of gate
    EXPECT_EQ(LaunchGroupedGemm(args, {64, 8}, 1, form, stream.get()), cudaErrorInvalidValue);
    args.gated = args.out_bf16 = false;
    args.groups = 1025;
    EXPECT_EQ(LaunchGroupedGemm(args, {64, 8}, 1, form, stream.get()), cudaErrorInvalidValue);
    args.groups = 1;
    args.rows = args.out_stride = 60;
    EXPECT_EQ(LaunchGroupedGemm(args, kWideGroupedTile, 1, form, stream.get()),
              cudaErrorInvalidValue);
    args.rows = 64;
    args.out_stride = 66;
    EXPECT_EQ(LaunchGroupedGemm(args, kWideGroupedTile, 1, form, stream.get()),
              cudaErrorInvalidValue);
    args.out_stride = 68;
    args.out = out.data() + 2;
    EXPECT_EQ(LaunchGroupedGemm(args, kWideGroupedTile, 1, form, stream.get()),
              cudaErrorInvalidValue);
  }
}

TEST(GroupedGemm, TilesHaveRoomForTwiceTheAverage) {
  for (const bool can_be_wide : {false, true}) {
    EXPECT_EQ(ChooseGroupedTile(8, 128, can_be_wide), (GroupedTileShape{64, 8}));
    EXPECT_EQ(ChooseGroupedTile(512, 128, can_be_wide), (GroupedTileShape{64, 8}));
    EXPECT_EQ(ChooseGroupedTile(513, 128, can_be_wide), (GroupedTileShape{64, 16}));
    EXPECT_EQ(ChooseGroupedTile(128 * 32, 128, can_be_wide), (GroupedTileShape{64, 64}));
    EXPECT_EQ(ChooseGroupedTile(128 * 64, 128, can_be_wide), (GroupedTileShape{128, 128}));
  }
  EXPECT_EQ(ChooseGroupedTile(128 * 64 + 1, 128, false), (GroupedTileShape{128, 128}));
  EXPECT_EQ(ChooseGroupedTile(128 * 64 + 1, 128, true), kWideGroupedTile);
  EXPECT_EQ(ChooseGroupedTile(128 * 512, 128, false), (GroupedTileShape{128, 128}));
  EXPECT_EQ(ChooseGroupedTile(128 * 512, 128, true), kWideGroupedTile);
}

}  // namespace
}  // namespace tokamak::cuda
