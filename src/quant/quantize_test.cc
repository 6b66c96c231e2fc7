#include "quant/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "quant/blocks.h"

namespace tokamak {
namespace {

constexpr DType kWeightTypes[] = {DType::kF32,  DType::kF16,   DType::kBF16,   DType::kQ4_0,
                                  DType::kQ4_1, DType::kQ5_0,  DType::kQ5_1,   DType::kQ8_0,
                                  DType::kQ2_K, DType::kQ3_K,  DType::kQ4_K,   DType::kQ5_K,
                                  DType::kQ6_K, DType::kMXFP4, DType::kIQ4_NL, DType::kIQ4_XS};

const std::string kGoldens = TOKAMAK_SOURCE_DIR "/tests/golden/quant/";

std::string Load(const std::string& name) {
  Result<std::string> content = ReadWholeFile(kGoldens + name, 1 << 20);
  EXPECT_TRUE(content.ok()) << content.status().ToString();
  return content.ok() ? *content : "";
}

class QuantizeTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, QuantizeTest, testing::ValuesIn(kWeightTypes),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST_P(QuantizeTest, DequantizesToTheLastBitAsTheGgufPackage) {
  const std::string golden = Load(std::string(Name(GetParam())) + ".bin");
  ASSERT_GE(golden.size(), 8u);
  uint32_t sizes[2];
  std::memcpy(sizes, golden.data(), 8);
  ASSERT_EQ(golden.size(), 8u + sizes[0] + 4u * sizes[1]);
  ASSERT_EQ(sizes[0], RowBytes(GetParam(), sizes[1]));
  std::vector<float> expected(sizes[1]), got(sizes[1]);
  std::memcpy(expected.data(), golden.data() + 8 + sizes[0], 4u * sizes[1]);

  // At an odd address, because rows in a file may start anywhere.
  std::vector<char> source(sizes[0] + 1);
  std::memcpy(source.data() + 1, golden.data() + 8, sizes[0]);
  DequantizeRow(GetParam(), source.data() + 1, sizes[1], got.data());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(got[i])) << "element " << i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i]))
          << "element " << i << ": " << got[i] << ", expected " << expected[i];
    }
  }
}

std::vector<uint64_t> SplitMix64(uint64_t seed, size_t count) {
  std::vector<uint64_t> out(count);
  for (uint64_t& value : out) {
    uint64_t z = seed += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    value = z ^ (z >> 31);
  }
  return out;
}

uint64_t Fnv1a(const std::vector<float>& values) {
  uint64_t hash = 0xcbf29ce484222325;
  for (float value : values) {
    const uint32_t word = std::isnan(value) ? 0x7fc00000u : std::bit_cast<uint32_t>(value);
    hash = (hash ^ word) * 0x100000001b3;
  }
  return hash;
}

// GGUF's number of each type, which seeds its golden hash.
uint64_t TypeNumber(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ5_0:
      return 6;
    case DType::kQ5_1:
      return 7;
    case DType::kQ8_0:
      return 8;
    case DType::kQ2_K:
      return 10;
    case DType::kQ3_K:
      return 11;
    case DType::kQ4_K:
      return 12;
    case DType::kQ5_K:
      return 13;
    case DType::kQ6_K:
      return 14;
    case DType::kIQ4_NL:
      return 20;
    case DType::kIQ4_XS:
      return 23;
    case DType::kBF16:
      return 30;
    case DType::kMXFP4:
      return 39;
    default:
      return 0;
  }
}

TEST_P(QuantizeTest, RandomBlocksHashAsTheGgufPackage) {
  std::ifstream hashes(kGoldens + "hashes.txt");
  std::string name, hash;
  int64_t elements = 0;
  while (hashes >> name >> elements >> hash && name != Name(GetParam())) continue;
  ASSERT_EQ(name, Name(GetParam()));
  const size_t bytes = RowBytes(GetParam(), elements);
  const std::vector<uint64_t> source = SplitMix64(TypeNumber(GetParam()), (bytes + 7) / 8);
  std::vector<float> got(static_cast<size_t>(elements));
  DequantizeRow(GetParam(), source.data(), elements, got.data());
  EXPECT_EQ(Fnv1a(got), std::stoull(hash, nullptr, 16));
}

float MaxAbs(const float* x, int n) {
  float max = 0;
  for (int i = 0; i < n; ++i) max = std::max(max, std::fabs(x[i]));
  return max;
}

// Worst error of a 32-element format on one block of x.
double BlockBound(DType dtype, const float* x) {
  const double amax = MaxAbs(x, 32);
  const double range = *std::max_element(x, x + 32) - *std::min_element(x, x + 32);
  const double half_rounding = (amax + range) * 0x1p-10;  // d and m are rounded to f16
  switch (dtype) {
    // The extreme takes the longer side of an asymmetric code; the other side is one step shorter.
    case DType::kQ4_0:
      return amax / 8 + half_rounding;
    case DType::kQ5_0:
      return amax / 16 + half_rounding;
    case DType::kQ4_1:
      return range / 15 / 2 + half_rounding;
    case DType::kQ5_1:
      return range / 31 / 2 + half_rounding;
    case DType::kQ8_0:
      return amax / 127 / 2 + half_rounding;
    // Codes reach -127 and 113; the widest gap is 23.
    case DType::kIQ4_NL:
      return amax / 127 * 14 + half_rounding;
    // The extreme is in [4, 8) units and codes end at 6.
    case DType::kMXFP4:
      return amax == 0 ? 0 : 2 * std::exp2(std::floor(std::log2(amax)) - 2);
    default:
      return NAN;
  }
}

// Worst error of a format with an offset per group, in group `g` of the super-block x.
double OffsetBound(const float* x, int g, int groups, int max_scale, int max_code) {
  const int size = 256 / groups;
  double max_step = 0, max_offset = 0, step = 0;
  for (int i = 0; i < groups; ++i) {
    const double offset = std::max(0.0f, -*std::min_element(x + i * size, x + (i + 1) * size));
    const double top = *std::max_element(x + i * size, x + (i + 1) * size);
    const double group_step = std::max(0.0, top + offset) / max_code;
    if (i == g) step = group_step;
    max_step = std::max(max_step, group_step);
    max_offset = std::max(max_offset, offset);
  }
  // Half a step, which was rounded up to a multiple of d, plus half a unit of the offset.
  return (step + max_step / max_scale) / 2 + max_offset / max_scale / 2 +
         0x1p-10 * (max_offset + max_step * max_code);
}

// The same for formats with a signed scale per group. The largest code is `extreme_code` steps from
// zero; no value in range is more than `code_error` steps from a code.
double SignedBound(const float* x, int g, int groups, int max_scale, int extreme_code,
                   double code_error) {
  const int size = 256 / groups;
  const double amax = MaxAbs(x, 256);
  const double group_max = MaxAbs(x + g * size, size);
  const double d = amax / extreme_code / max_scale;
  // A scale of the other sign reaches only max_scale - 1.
  return (group_max / extreme_code + d) * code_error + group_max / max_scale + 0x1p-10 * amax;
}

double Bound(DType dtype, const float* row, int i) {
  const float* block = row + i / 32 * 32;
  const float* super = row + i / 256 * 256;
  const int in_super = i % 256;
  switch (dtype) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return std::max(std::fabs(row[i]) * 0x1p-11, 0x1p-25);
    case DType::kBF16:
      return std::fabs(row[i]) * 0x1p-8;
    case DType::kQ2_K:
      return OffsetBound(super, in_super / 16, 16, 15, 3);
    case DType::kQ4_K:
      return OffsetBound(super, in_super / 32, 8, 63, 15);
    case DType::kQ5_K:
      return OffsetBound(super, in_super / 32, 8, 63, 31);
    case DType::kQ3_K:
      return SignedBound(super, in_super / 16, 16, 32, 4, 1);
    case DType::kQ6_K:
      return SignedBound(super, in_super / 16, 16, 128, 32, 1);
    case DType::kIQ4_XS:
      return SignedBound(super, in_super / 32, 8, 32, 127, 14);
    default:
      return BlockBound(dtype, block);
  }
}

std::vector<float> TestRow(int kind, int n, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> row(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) {
    float& x = row[static_cast<size_t>(i)];
    x = normal(random);
    if (kind == 1) x = std::fabs(x) + 1;                                 // all positive
    if (kind == 2) x = -std::fabs(x) - 1;                                // all negative
    if (kind == 3) x *= std::exp2(static_cast<float>(i / 16 % 12 - 6));  // unequal groups
    if (kind == 4) x = i % 37 == 0 ? 3.0f : 0.0f;                        // mostly zeros
    if (kind == 5) x = 0;
  }
  return row;
}

TEST_P(QuantizeTest, RoundTripErrorIsWithinTheBoundOfTheFormat) {
  std::mt19937 random(1);
  for (int kind = 0; kind < 6; ++kind) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      const std::vector<float> row = TestRow(kind, 512, random);
      std::vector<std::byte> packed(RowBytes(GetParam(), 512));
      std::vector<float> back(512);
      QuantizeRow(GetParam(), row.data(), 512, packed.data());
      DequantizeRow(GetParam(), packed.data(), 512, back.data());
      for (int i = 0; i < 512; ++i) {
        const auto at = static_cast<size_t>(i);
        ASSERT_LE(std::fabs(static_cast<double>(back[at]) - row[at]),
                  Bound(GetParam(), row.data(), i) * 1.0001)
            << "kind " << kind << ", element " << i << ": " << row[at] << " became " << back[at];
      }
    }
  }
}

TEST_P(QuantizeTest, NonFiniteInputGivesSomeBlock) {
  std::vector<float> row(256, 0.5f);
  const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-45f};
  for (size_t i = 0; i < 6; ++i) row[i * 40] = bad[i];
  std::vector<std::byte> packed(RowBytes(GetParam(), 256));
  std::vector<float> back(256);
  QuantizeRow(GetParam(), row.data(), 256, packed.data());
  DequantizeRow(GetParam(), packed.data(), 256, back.data());
}

}  // namespace
}  // namespace tokamak
