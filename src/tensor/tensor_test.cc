#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include "tensor/arena.h"

namespace tokamak {
namespace {

TEST(Shape, RowsAndColumns) {
  EXPECT_EQ(Shape().elements(), 0);
  EXPECT_EQ((Shape{7}).rows(), 1);
  EXPECT_EQ((Shape{7}).cols(), 7);
  const Shape shape{2, 3, 5};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape.rows(), 6);
  EXPECT_EQ(shape.cols(), 5);
  EXPECT_EQ(shape.elements(), 30);
  EXPECT_EQ(shape.ToString(), "[2, 3, 5]");
  EXPECT_EQ(Shape().ToString(), "[]");
  EXPECT_EQ((Shape{0, 4}).elements(), 0);
}

TEST(Shape, ComparesRankAndDimensions) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2}), (Shape{2, 0}));
}

// Bits per weight from the llama.cpp documentation.
TEST(DType, BlockTypesHaveTheirKnownDensity) {
  const std::vector<std::pair<DType, double>> expected = {
      {DType::kQ4_0, 4.5},   {DType::kQ4_1, 5.0},    {DType::kQ5_0, 5.5},    {DType::kQ5_1, 6.0},
      {DType::kQ8_0, 8.5},   {DType::kQ2_K, 2.625},  {DType::kQ3_K, 3.4375}, {DType::kQ4_K, 4.5},
      {DType::kQ5_K, 5.5},   {DType::kQ6_K, 6.5625}, {DType::kIQ4_NL, 4.5},  {DType::kIQ4_XS, 4.25},
      {DType::kMXFP4, 4.25}, {DType::kF32, 32},      {DType::kF16, 16},      {DType::kBF16, 16},
      {DType::kF8E4M3, 8},
  };
  for (const auto& [dtype, bits] : expected) {
    EXPECT_DOUBLE_EQ(8.0 * Info(dtype).block_bytes / Info(dtype).block_elements, bits)
        << Name(dtype);
  }
}

TEST(DType, NamesAreUniqueAndNotEmpty) {
  for (int i = 0; i < kNumDTypes; ++i) {
    ASSERT_FALSE(Name(static_cast<DType>(i)).empty()) << i;
    for (int j = 0; j < i; ++j) EXPECT_NE(Name(static_cast<DType>(i)), Name(static_cast<DType>(j)));
  }
}

TEST(DTypeDeathTest, ARowOfPartBlocksIsABug) {
  EXPECT_EQ(RowBytes(DType::kQ4_K, 512), 288u);
  EXPECT_DEATH(RowBytes(DType::kQ4_K, 300), "whole blocks");
}

TEST(Tensor, RowsAndColsAreViewsOfTheSameBytes) {
  std::array<float, 24> data;
  std::iota(data.begin(), data.end(), 0.0f);
  const Tensor tensor(data.data(), DType::kF32, Shape{2, 3, 4});
  EXPECT_TRUE(tensor.contiguous());
  EXPECT_EQ(tensor.rows(), 6);
  EXPECT_EQ(tensor.Row<float>(5)[3], 23.0f);

  const Tensor rows = tensor.Rows(2, 5);
  EXPECT_EQ(rows.shape, (Shape{3, 4}));
  EXPECT_EQ(rows.Row<float>(0)[0], 8.0f);

  const Tensor cols = rows.Cols(1, 3);
  EXPECT_EQ(cols.shape, (Shape{3, 2}));
  EXPECT_FALSE(cols.contiguous());
  EXPECT_EQ(cols.Row<float>(2)[1], 18.0f);
  cols.Row<float>(2)[1] = -1.0f;
  EXPECT_EQ(data[18], -1.0f);
  EXPECT_TRUE(tensor.Rows(3, 3).empty());
}

TEST(Tensor, ColumnsOfABlockTypeAreCutAtBlocks) {
  std::array<std::byte, 2 * 3 * 18> data{};
  const Tensor tensor(data.data(), DType::kQ4_0, Shape{2, 96});
  const Tensor part = tensor.Cols(32, 96);
  EXPECT_EQ(part.RowData(1) - data.data(), 3 * 18 + 18);
  EXPECT_EQ(part.row_stride, 3 * 18);
}

TEST(TensorDeathTest, AViewOutsideTheTensorIsABug) {
  const Tensor tensor(nullptr, DType::kF32, Shape{4, 4});
  EXPECT_DEATH(tensor.Rows(2, 5), "CHECK failed");
  EXPECT_DEATH(tensor.Cols(3, 2), "CHECK failed");
}

Buffer HostBuffer(size_t bytes) {
  return Buffer(std::shared_ptr<void>(
                    ::operator new(bytes, std::align_val_t(Arena::kAlignment)),
                    [](void* p) { ::operator delete(p, std::align_val_t(Arena::kAlignment)); }),
                bytes);
}

TEST(Arena, TensorsAreAlignedAndDoNotOverlap) {
  Arena arena(HostBuffer(4096));
  const Tensor a = arena.Allocate(DType::kF32, Shape{3, 5});
  const Tensor b = arena.Allocate(DType::kBF16, Shape{1, 7});
  for (const Tensor& tensor : {a, b}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % Arena::kAlignment, 0u);
  }
  EXPECT_GE(static_cast<std::byte*>(b.data) - static_cast<std::byte*>(a.data), 3 * 5 * 4);
  EXPECT_EQ(a.shape, (Shape{3, 5}));
}

TEST(Arena, AScopeGivesItsTensorsBackAndThePeakRemembersThem) {
  Arena arena(HostBuffer(4096));
  arena.Allocate(DType::kF32, Shape{1, 64});
  const size_t before = arena.used();
  void* first = nullptr;
  {
    ArenaScope scope(arena);
    first = arena.Allocate(DType::kF32, Shape{1, 256}).data;
  }
  EXPECT_EQ(arena.used(), before);
  EXPECT_EQ(arena.peak(), 256u + 1024u);
  EXPECT_EQ(arena.Allocate(DType::kF32, Shape{1, 1}).data, first);
}

TEST(Arena, CountingMeasuresWhatAnAllocatingOneWouldUse) {
  Arena counting = Arena::Counting();
  Arena real(HostBuffer(1 << 20));
  for (Arena* arena : {&counting, &real}) {
    arena->Allocate(DType::kF32, Shape{17, 33});
    arena->Allocate(DType::kQ8_0, Shape{5, 64});
  }
  EXPECT_EQ(counting.peak(), real.peak());
  EXPECT_EQ(counting.Allocate(DType::kF32, Shape{1 << 20, 1 << 20}).data, nullptr);
}

TEST(ArenaDeathTest, RunningOutIsABugAndNotACorruption) {
  Arena arena(HostBuffer(1024));
  EXPECT_DEATH(arena.Allocate(DType::kF32, Shape{1, 257}), "arena too small");
}

// A counting pass has no memory. An offset from null would be undefined behavior.
TEST(Tensor, ViewsWithoutDataHaveNone) {
  const Tensor t(nullptr, DType::kF32, Shape{4, 8});
  EXPECT_EQ(t.Rows(1, 3).data, nullptr);
  EXPECT_EQ(t.Cols(2, 6).data, nullptr);
  EXPECT_EQ(t.Cols(2, 6).shape, (Shape{4, 4}));
}

}  // namespace
}  // namespace tokamak
