// GatherRows, CopyRows, ScatterElements and CopyRanges on every backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "ops/testing/op_harness.h"

namespace tokamak {
namespace {

class CopyOps : public OpTest {};
INSTANTIATE_TEST_SUITE_P(All, CopyOps, ::testing::ValuesIn(OpBackends()), OpBackendName);

TEST_P(CopyOps, GatherRowsPicksRows) {
  std::mt19937_64 random(6);
  const auto ops = Make(2);
  const std::vector<float> source = RandomFloats(random, 9 * 33);
  for (const std::vector<int32_t>& rows :
       std::vector<std::vector<int32_t>>{{}, {8}, {3, 0, 3, 7}}) {
    OpRunner run(*ops);
    const auto count = static_cast<int64_t>(rows.size());
    const GatherRows op = {.source = run.Floats(source, {9, 33}),
                           .rows = run.Ints(rows),
                           .out = run.Output({count, 33})};
    run.Run(op);
    const std::vector<float> out = run.Download(op.out);
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_TRUE(SameBits({out.begin() + static_cast<int64_t>(i) * 33,
                            out.begin() + static_cast<int64_t>(i + 1) * 33},
                           {source.begin() + rows[i] * 33, source.begin() + (rows[i] + 1) * 33}));
    }
  }
}

// Some pairs are padding: their `from` is -1, and their `to` anything.
TEST_P(CopyOps, CopyRowsWritesOnlyTheGivenRows) {
  std::mt19937_64 random(10);
  const auto ops = Make(2);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t cols : {33, 64}) {
      const std::vector<float> source = RandomFloats(random, 9 * cols);
      const std::vector<float> before = RandomFloats(random, 5 * cols);
      OpRunner run(*ops);
      const Tensor out = run.Rounded(before, dtype, {5, cols});
      // Rows of the source and of the output lie in wider tensors.
      const int64_t end = cols - 3;
      const CopyRows op = {.source = run.Rounded(source, dtype, {9, cols}).Cols(2, end),
                           .from = run.Ints({8, -1, 0, 8, -1}),
                           .to = run.Ints({3, 1 << 30, 0, 4, 1}),
                           .out = out.Cols(2, end)};
      run.Run(op);
      run.Run(
          CopyRows{.source = op.source, .from = run.Ints({}), .to = run.Ints({}), .out = op.out});
      std::vector<float> expected = RoundTo(dtype, before);
      const std::vector<float> rows = RoundTo(dtype, source);
      for (const auto& [from, to] : {std::pair{8, 3}, {0, 0}, {8, 4}}) {
        std::copy_n(rows.begin() + from * cols + 2, end - 2, expected.begin() + to * cols + 2);
      }
      EXPECT_TRUE(SameBits(run.Download(out), expected)) << Name(dtype) << " " << cols;
    }
  }
}

// More ranges than one launch takes, of a size that vector widths divide and one that they do not.
TEST_P(CopyOps, CopyRangesOfManyBlocks) {
  std::mt19937_64 random(9);
  const auto ops = Make(2);
  constexpr size_t kBlocks = 300, kStride = 4096;
  for (const size_t bytes : {size_t{4096}, size_t{4001}}) {
    OpRunner run(*ops);
    std::vector<std::byte> memory(2 * kBlocks * kStride);
    for (std::byte& b : memory) b = static_cast<std::byte>(random());
    const Tensor device =
        run.Upload(memory.data(), DType::kI8, {static_cast<int64_t>(memory.size())});
    auto* base = static_cast<std::byte*>(device.data);
    std::vector<CopyRanges::Range> ranges;
    for (size_t i = 0; i < kBlocks; ++i) {
      const size_t from = i * kStride, to = (kBlocks + (i * 7) % kBlocks) * kStride;
      ranges.push_back({base + from, base + to});
      std::memcpy(&memory[to], &memory[from], bytes);
    }
    run.Run(CopyRanges{.ranges = ranges, .bytes = bytes});
    EXPECT_EQ(run.DownloadBytes(base, memory.size()), memory);
  }
}

TEST_P(CopyOps, ScatterElementsSetsOnlyTheGivenOnes) {
  const auto ops = Make(2);
  OpRunner run(*ops);
  const Tensor out = run.Ints({0, 1, 2, 3, 4, 5});
  run.Run(ScatterElements{
      .indices = run.Ints({5, 0, 2}), .values = run.Ints({-7, 8, 1 << 30}), .out = out});
  run.Run(ScatterElements{.indices = run.Ints({}), .values = run.Ints({}), .out = out});
  std::vector<int32_t> result(6);
  const std::vector<std::byte> bytes = run.DownloadBytes(out.data, 24);
  std::memcpy(result.data(), bytes.data(), bytes.size());
  EXPECT_EQ(result, (std::vector<int32_t>{8, 1, 1 << 30, 3, 4, -7}));
}

TEST_P(CopyOps, CopyRangesCopiesOnlyTheGivenBytes) {
  std::mt19937_64 random(7);
  const auto ops = Make(2);
  OpRunner run(*ops);
  std::vector<std::byte> bytes(100000);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  const Tensor memory = run.Upload(bytes.data(), DType::kI8, {static_cast<int64_t>(bytes.size())});
  auto* base = static_cast<std::byte*>(memory.data);
  const std::vector<CopyRanges::Range> ranges = {
      {base + 5, base + 50001}, {base + 20000, base + 77000}, {base + 30000, base + 12000}};
  run.Run(CopyRanges{.ranges = ranges, .bytes = 4321});
  std::memcpy(&bytes[50001], &bytes[5], 4321);
  std::memcpy(&bytes[77000], &bytes[20000], 4321);
  std::memcpy(&bytes[12000], &bytes[30000], 4321);
  EXPECT_EQ(run.DownloadBytes(base, bytes.size()), bytes);
  run.Run(CopyRanges{.ranges = {}, .bytes = 4321});
  EXPECT_EQ(run.DownloadBytes(base, bytes.size()), bytes);
}

}  // namespace
}  // namespace tokamak
