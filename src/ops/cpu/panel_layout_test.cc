// Panels of types without blocks. LinearOps and EmbedOps compare those of all types with the
// reference.
#include "ops/cpu/panel_layout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace tokamak::cpu {
namespace {

// Element `k` of a row is 100 · row + k + 1.
template <typename T>
std::vector<T> Pack(DType dtype, int64_t cols) {
  std::vector<T> rows(static_cast<size_t>(kPanelRows * cols));
  for (int64_t i = 0; i < kPanelRows * cols; ++i) {
    rows[static_cast<size_t>(i)] = static_cast<T>(100 * (i / cols) + i % cols + 1);
  }
  std::vector<T> panel(static_cast<size_t>(PanelBytes(dtype, cols)) / sizeof(T), T{0xee});
  PackPanel(dtype, cols, reinterpret_cast<const std::byte*>(rows.data()),
            reinterpret_cast<std::byte*>(panel.data()));
  return panel;
}

class PanelLayoutColumns : public testing::TestWithParam<int64_t> {};

TEST_P(PanelLayoutColumns, F32AndF16HaveAllRowsOfAColumnTogether) {
  const int64_t cols = GetParam();
  const std::vector<uint32_t> words = Pack<uint32_t>(DType::kF32, cols);
  const std::vector<uint16_t> halves = Pack<uint16_t>(DType::kF16, cols);
  ASSERT_EQ(words.size(), static_cast<size_t>(kPanelRows * cols));
  for (int64_t k = 0; k < cols; ++k) {
    for (int64_t row = 0; row < kPanelRows; ++row) {
      const auto at = static_cast<size_t>(kPanelRows * k + row);
      EXPECT_EQ(words[at], 100 * row + k + 1);
      EXPECT_EQ(halves[at], 100 * row + k + 1);
    }
  }
}

TEST_P(PanelLayoutColumns, Bf16HasPairsAndZerosInTheColumnThatAnOddNumberLacks) {
  const int64_t cols = GetParam(), padded = cols + cols % 2;
  const std::vector<uint16_t> panel = Pack<uint16_t>(DType::kBF16, cols);
  ASSERT_EQ(panel.size(), static_cast<size_t>(kPanelRows * padded));
  for (int64_t k = 0; k < padded; ++k) {
    for (int64_t row = 0; row < kPanelRows; ++row) {
      const auto at = static_cast<size_t>(kPanelRows * (k - k % 2) + 2 * row + k % 2);
      EXPECT_EQ(panel[at], k < cols ? 100 * row + k + 1 : 0) << "column " << k << ", row " << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Columns, PanelLayoutColumns, testing::Values(1, 2, 3, 4, 7, 8, 9, 14, 34));

}  // namespace
}  // namespace tokamak::cpu
