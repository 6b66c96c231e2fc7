// The results of products of bf16, bit by bit, for tests of kernels: one chain of tensor-core
// products of 16 columns, ascending, from zero.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "ops/cuda/testing/device_math.h"
#include "quant/half.h"

namespace tokamak::cuda {

// Numbers of both signs, so that the products of a sum partly cancel.
inline std::vector<uint16_t> RandomBf16(std::mt19937& random, int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<uint16_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(FloatToBFloat16(normal(random)));
  return out;
}

// x [num_tokens, cols], weight [rows, cols], result [num_tokens, rows].
inline std::vector<float> ChainOfProducts(const uint16_t* x, int64_t num_tokens,
                                          const uint16_t* weight, int64_t rows, int64_t cols) {
  std::vector<float> sums(static_cast<size_t>(num_tokens * rows));
  // 16 columns from k on, zeros where there are none.
  const auto cut = [cols](const uint16_t* from, int64_t count, int64_t k) {
    std::vector<uint16_t> to(static_cast<size_t>(count * 16));
    for (int64_t row = 0; row < count; ++row) {
      std::copy_n(from + row * cols + k, std::min<int64_t>(16, cols - k), to.data() + row * 16);
    }
    return to;
  };
  for (int64_t k = 0; k < cols && !sums.empty(); k += 16) {
    const std::vector<uint16_t> a = cut(x, num_tokens, k), b = cut(weight, rows, k);
    emulation::MultiplyAccumulate(
        emulation::Instruction::kMma, TensorCoreSums(),
        {static_cast<int>(num_tokens), static_cast<int>(rows), 16},
        {.elements = a.data(), .type = emulation::ElementType::kBf16, .row_stride = 16},
        {.elements = b.data(),
         .type = emulation::ElementType::kBf16,
         .row_stride = 1,
         .column_stride = 16},
        sums.data());
  }
  return sums;
}

// Expects that one row of `actual`, of `cols` elements, is NaN, and the others as expected.
inline void ExpectNanInRow(size_t row, const std::vector<float>& actual,
                           const std::vector<float>& expected, int64_t cols) {
  for (size_t i = 0; i < actual.size(); ++i) {
    if (i / static_cast<size_t>(cols) == row) {
      EXPECT_TRUE(actual[i] != actual[i]);
    } else {
      EXPECT_EQ(actual[i], expected[i]) << i;
    }
  }
}

inline std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

}  // namespace tokamak::cuda
