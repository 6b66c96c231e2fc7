#include "ops/cuda/emulation/tensor_core_arithmetic.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace tokamak::cuda::emulation {
namespace {

struct Product {
  Instruction instruction;
  ElementType a, b;
  int k;
};

// As tests/golden/make_tensor_core_goldens.py has them.
constexpr Product kProducts[] = {
    {Instruction::kMma, ElementType::kBf16, ElementType::kBf16, 16},
    {Instruction::kMma, ElementType::kBf16, ElementType::kBf16, 8},
    {Instruction::kMma, ElementType::kF16, ElementType::kF16, 16},
    {Instruction::kMma, ElementType::kF16, ElementType::kF16, 8},
    {Instruction::kMma, ElementType::kE4m3, ElementType::kE4m3, 32},
    {Instruction::kMma, ElementType::kE5m2, ElementType::kE4m3, 32},
    {Instruction::kMma, ElementType::kE4m3, ElementType::kE5m2, 16},
    {Instruction::kWgmma, ElementType::kBf16, ElementType::kBf16, 16},
    {Instruction::kWgmma, ElementType::kF16, ElementType::kF16, 16},
    {Instruction::kWgmma, ElementType::kE4m3, ElementType::kE4m3, 32},
    {Instruction::kWgmma, ElementType::kE5m2, ElementType::kE5m2, 32},
    {Instruction::kWgmma, ElementType::kE4m3, ElementType::kE5m2, 32},
    {Instruction::kWgmma, ElementType::kE5m2, ElementType::kE4m3, 32},
};
constexpr int kKinds = 11;  // of inputs, in the golden

size_t BytesOf(ElementType type) { return Is8Bit(type) ? 1 : 2; }

ElementType Type(const std::string& name) {
  if (name == "bf16") return ElementType::kBf16;
  if (name == "f16") return ElementType::kF16;
  return name == "e4m3" ? ElementType::kE4m3 : ElementType::kE5m2;
}

template <typename T>
std::vector<T> Read(std::istream& in, size_t count) {
  std::vector<T> values(count);
  in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(count * sizeof(T)));
  return values;
}

// The golden, or fresh answers of mmasim: make_tensor_core_goldens.py --check sets the variable.
TEST(TensorCoreArithmetic, EqualsMmasim) {
  const char* fresh = std::getenv("TOKAMAK_TENSOR_CORE_GOLDEN");
  std::ifstream file(fresh != nullptr ? fresh : TOKAMAK_SOURCE_DIR "/tests/golden/tensor_core.bin",
                     std::ios::binary);
  ASSERT_TRUE(file);
  size_t tiles = 0;
  for (std::string head; std::getline(file, head); ++tiles) {
    std::string instruction, a_type, b_type;
    TileShape shape = {};
    std::istringstream(head) >> instruction >> a_type >> b_type >> shape.m >> shape.n >> shape.k;
    const ElementType a = Type(a_type), b = Type(b_type);
    const auto m = static_cast<size_t>(shape.m), n = static_cast<size_t>(shape.n),
               k = static_cast<size_t>(shape.k);
    const auto a_bits = Read<uint8_t>(file, m * k * BytesOf(a));
    const auto b_bits = Read<uint8_t>(file, k * n * BytesOf(b));
    const auto before = Read<uint32_t>(file, m * n);
    const auto expected = Read<uint32_t>(file, m * n);
    ASSERT_TRUE(file) << head;
    auto sums = before;
    MultiplyAccumulate(instruction == "mma" ? Instruction::kMma : Instruction::kWgmma,
                       Arithmetic::kHopper, shape, {a_bits.data(), a, shape.k},
                       {b_bits.data(), b, shape.n}, reinterpret_cast<float*>(sums.data()));
    for (size_t i = 0; i < sums.size(); ++i) {
      ASSERT_EQ(sums[i], expected[i])
          << std::hex << head << "\ntile " << std::dec << tiles << ", row " << i / n << ", column "
          << i % n << ", accumulator " << std::hex << before[i] << ": " << sums[i] << " instead of "
          << expected[i];
    }
  }
  if (fresh == nullptr) {
    EXPECT_EQ(tiles, std::size(kProducts) * kKinds);
  }
}

class EachProduct : public testing::TestWithParam<Product> {};

std::vector<uint8_t> RandomBytes(size_t count, std::mt19937& random) {
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// A tile that no power of two divides, with b transposed, against its elements one by one.
TEST_P(EachProduct, AnElementDependsOnItsRowColumnAndAccumulatorOnly) {
  const auto [instruction, a_type, b_type, depth] = GetParam();
  constexpr int kM = 37, kN = 19;
  const auto k = static_cast<size_t>(depth);
  std::mt19937 random(7);
  const size_t a_row = k * BytesOf(a_type), b_column = k * BytesOf(b_type);
  const auto a = RandomBytes(kM * a_row, random), b = RandomBytes(kN * b_column, random);
  std::vector<uint32_t> sums(size_t{kM} * kN);
  for (uint32_t& sum : sums) sum = static_cast<uint32_t>(random());
  for (const Arithmetic arithmetic : {Arithmetic::kHopper, Arithmetic::kInOrder}) {
    auto tile = sums;
    MultiplyAccumulate(instruction, arithmetic, {kM, kN, depth}, {a.data(), a_type, depth},
                       {b.data(), b_type, 1, depth}, reinterpret_cast<float*>(tile.data()));
    for (size_t i = 0; i < tile.size(); ++i) {
      uint32_t alone = sums[i];
      MultiplyAccumulate(instruction, arithmetic, {1, 1, depth},
                         {&a[i / kN * a_row], a_type, depth}, {&b[i % kN * b_column], b_type, 1},
                         reinterpret_cast<float*>(&alone));
      ASSERT_EQ(tile[i], alone) << "element " << i;
    }
  }
}

// The value of a finite element.
double ValueOf(ElementType type, uint32_t bits) {
  const auto [exponent_bits, fraction_bits] = type == ElementType::kBf16   ? std::pair(8, 7)
                                              : type == ElementType::kF16  ? std::pair(5, 10)
                                              : type == ElementType::kE4m3 ? std::pair(4, 3)
                                                                           : std::pair(5, 2);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int field = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = static_cast<int>(bits) & ((1 << fraction_bits) - 1);
  const double magnitude =
      field == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                 : std::ldexp(fraction + (1 << fraction_bits), field - bias - fraction_bits);
  return bits >> (exponent_bits + fraction_bits) != 0 ? -magnitude : magnitude;
}

TEST_P(EachProduct, InOrderAddsFloatsAlongK) {
  const auto [instruction, a_type, b_type, depth] = GetParam();
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<uint8_t> a, b;
    const float start = std::ldexp(static_cast<float>(random() % 4096), -9) - 4;
    float expected = start;
    for (int k = 0; k < depth; ++k) {
      // Without the largest exponents, where Inf and NaN are.
      float values[2];
      for (const int i : {0, 1}) {
        const ElementType type = i == 0 ? a_type : b_type;
        const bool wide = !Is8Bit(type);
        const uint32_t bits = random() & (type == ElementType::kE4m3 ? 0xF7u
                                          : wide                     ? 0xBFFFu
                                                                     : 0xBFu);
        values[i] = static_cast<float>(ValueOf(type, bits));
        auto& to = i == 0 ? a : b;
        to.push_back(static_cast<uint8_t>(bits));
        if (wide) to.push_back(static_cast<uint8_t>(bits >> 8));
      }
      expected += values[0] * values[1];
    }
    float sum = start;
    MultiplyAccumulate(instruction, Arithmetic::kInOrder, {1, 1, depth}, {a.data(), a_type, depth},
                       {b.data(), b_type, 1}, &sum);
    ASSERT_EQ(std::bit_cast<uint32_t>(sum), std::bit_cast<uint32_t>(expected));
  }
}

INSTANTIATE_TEST_SUITE_P(TensorCoreArithmetic, EachProduct, testing::ValuesIn(kProducts));

}  // namespace
}  // namespace tokamak::cuda::emulation
