#include "ops/cuda/emulation/tensor_core_arithmetic.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/check.h"

namespace tokamak::cuda::emulation {
namespace {

constexpr int kMaxK = 32;
constexpr int kRows = 16;    // of a, decoded at once
constexpr int kColumns = 8;  // of b: the lanes of a vector
constexpr uint32_t kNan = 0x7FFFFFFF;
constexpr uint32_t kInf = 0x7F800000;
// The least exponent to which terms are aligned: bits below 2^(-133 - F) are always lost.
constexpr int kLeastExponent = -133;
// Added to a zero's exponent, so that no product with a zero has the largest one.
constexpr int kExponentOfZero = -1000;
// Shifts stop here: scaling by 2^(kVanished + F) leaves nothing of a product.
constexpr int kVanished = -40;

struct Format {
  int exponent_bits;
  int fraction_bits;
};

constexpr Format FormatOf(ElementType type) {
  switch (type) {
    case ElementType::kBf16:
      return {8, 7};
    case ElementType::kF16:
      return {5, 10};
    case ElementType::kE4m3:
      return {4, 3};
    case ElementType::kE5m2:
      return {5, 2};
  }
  return {};
}

// How an instruction cuts its k products into sums.
struct Sums {
  int block;          // products in a sum
  int fraction_bits;  // kept below the largest exponent: F
  int result_bits;    // fraction bits of the result
  bool as_f16;        // mma.sync of 8 bits: two sums from zero, then the accumulator is added
};

Sums SumsOf(Instruction instruction, ElementType type, int k) {
  if (!Is8Bit(type)) return {k, 25, 23, false};
  if (instruction == Instruction::kWgmma) return {k, 13, 13, false};
  return {k / 2, 25, 23, true};
}

// `kLanes` rows of a or columns of b. An element is significand · 2^exponent, with |significand| in
// [1, 2), or below 1 if the element is zero or subnormal.
template <size_t kLanes>
struct Operand {
  using Values = std::array<std::array<float, kLanes>, kMaxK>;
  Values significand;  // 0 for Inf and NaN
  std::array<std::array<int16_t, kLanes>, kMaxK> exponent;
  bool has_specials;
  Values with_specials;  // significands, or Inf and NaN; set if there are any

  const Values& WithSpecials() const { return has_specials ? with_specials : significand; }
};

template <size_t kLanes>
using RawElements = std::array<std::array<uint16_t, kLanes>, kMaxK>;

// Copies elements to `raw`, in the order in which the sums take them. Lanes beyond `count` become
// zeros.
template <typename Element, size_t kLanes>
void Gather(const Element* elements, ptrdiff_t lane_stride, ptrdiff_t k_stride, int count, int k,
            bool as_f16, RawElements<kLanes>& raw) {
  for (int i = 0; i < k; ++i) {
    // The first two of every four, then the last two.
    const int position = as_f16 ? i / 4 * 2 + i % 2 + (i % 4 < 2 ? 0 : k / 2) : i;
    const Element* from = elements + i * k_stride;
    auto& to = raw[static_cast<size_t>(position)];
    to.fill(0);
    for (int lane = 0; lane < count; ++lane) {
      to[static_cast<size_t>(lane)] = from[lane * lane_stride];
    }
  }
}

template <ElementType kType, size_t kLanes>
void Decode(const RawElements<kLanes>& raw, size_t k, Operand<kLanes>& out) {
  constexpr Format kFormat = FormatOf(kType);
  constexpr int kSignBit = kFormat.exponent_bits + kFormat.fraction_bits;
  constexpr int kImplicit = 1 << kFormat.fraction_bits;
  constexpr int kExponentMask = (1 << kFormat.exponent_bits) - 1;
  constexpr int kBias = kExponentMask >> 1;
  constexpr bool kHasInf = kType != ElementType::kE4m3;
  constexpr int kFirstSpecial = kHasInf ? kExponentMask * kImplicit : 0x7F;
  constexpr float kUnit = 1.0f / kImplicit;
  int specials = 0;
  for (size_t i = 0; i < k; ++i) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const int bits = raw[i][lane];
      const int magnitude = bits & ((1 << kSignBit) - 1);
      const int field = magnitude >> kFormat.fraction_bits;
      const int special = magnitude >= kFirstSpecial ? 1 : 0;
      const int significand = (magnitude & (kImplicit - 1)) + (field != 0 ? kImplicit : 0);
      const float value = static_cast<float>(significand * (1 - special)) * kUnit;
      const uint32_t sign = static_cast<uint32_t>(bits >> kSignBit) << 31;
      out.significand[i][lane] = std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
      out.exponent[i][lane] =
          static_cast<int16_t>(std::max(field, 1) - kBias + (magnitude == 0 ? kExponentOfZero : 0));
      specials |= special;
    }
  }
  out.has_specials = specials != 0;
  if (!out.has_specials) return;
  for (size_t i = 0; i < k; ++i) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const int magnitude = raw[i][lane] & ((1 << kSignBit) - 1);
      const bool inf = kHasInf && magnitude == kFirstSpecial;
      const auto special = std::bit_cast<float>(inf ? kInf : kNan);
      out.with_specials[i][lane] = magnitude < kFirstSpecial       ? out.significand[i][lane]
                                   : raw[i][lane] >> kSignBit != 0 ? -special
                                                                   : special;
    }
  }
}

// Converts e4m3 operands to f16, in which none of them is subnormal.
template <size_t kLanes>
void Normalize(size_t k, Operand<kLanes>& operand) {
  for (size_t i = 0; i < k; ++i) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      float& significand = operand.significand[i][lane];
      if (significand == 0) continue;
      for (; std::abs(significand) < 1; significand *= 2) --operand.exponent[i][lane];
    }
  }
}

// `count` rows or columns of a matrix, the first of which starts at `offset`.
template <size_t kLanes>
void Load(const Matrix& matrix, ptrdiff_t offset, ptrdiff_t lane_stride, ptrdiff_t k_stride,
          int count, int k, bool as_f16, Operand<kLanes>& out) {
  RawElements<kLanes> raw;
  if (Is8Bit(matrix.type)) {
    Gather(static_cast<const uint8_t*>(matrix.elements) + offset, lane_stride, k_stride, count, k,
           as_f16, raw);
  } else {
    Gather(static_cast<const uint16_t*>(matrix.elements) + offset, lane_stride, k_stride, count, k,
           as_f16, raw);
  }
  const auto size = static_cast<size_t>(k);
  switch (matrix.type) {
    case ElementType::kBf16:
      return Decode<ElementType::kBf16>(raw, size, out);
    case ElementType::kF16:
      return Decode<ElementType::kF16>(raw, size, out);
    case ElementType::kE4m3:
      Decode<ElementType::kE4m3>(raw, size, out);
      if (as_f16) Normalize(size, out);
      return;
    case ElementType::kE5m2:
      return Decode<ElementType::kE5m2>(raw, size, out);
  }
}

// Replaces significands by the elements' values, including Inf and NaN.
template <size_t kLanes>
void Scale(size_t k, Operand<kLanes>& operand) {
  for (size_t i = 0; i < k; ++i) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const int exponent = std::max<int>(operand.exponent[i][lane], -126);  // lower only for zeros
      operand.significand[i][lane] =
          operand.WithSpecials()[i][lane] * std::bit_cast<float>((exponent + 127) << 23);
    }
  }
}

// Returns sum · 2^exponent as f32, cut off toward zero after `fraction_bits`.
uint32_t Encode(int64_t sum, int exponent, int fraction_bits) {
  const uint32_t sign = sum < 0 ? 0x80000000u : 0;
  auto magnitude = static_cast<uint64_t>(std::abs(sum));
  const int result_exponent =
      std::max(static_cast<int>(std::bit_width(magnitude)) - 1 + exponent, -126);
  if (result_exponent > 127) return sign | kInf;
  const int lost = result_exponent - fraction_bits - exponent;
  magnitude = lost >= 0 ? magnitude >> lost : magnitude << -lost;
  if (magnitude == 0) return 0;
  // The leading 1 of a normal number adds one to the exponent's field.
  return sign + (static_cast<uint32_t>(result_exponent + 126) << 23) +
         (static_cast<uint32_t>(magnitude) << (23 - fraction_bits));
}

// An f32 accumulator: significand · 2^(exponent - 23).
struct Accumulator {
  int64_t significand;
  int exponent;
};

Accumulator DecodeAccumulator(uint32_t bits) {
  const int field = static_cast<int>(bits >> 23 & 0xFF);
  const int64_t significand = (bits & 0x7FFFFF) | (field != 0 ? 0x800000u : 0);
  return {bits >> 31 != 0 ? -significand : significand,
          significand == 0 ? kLeastExponent : std::max(field, 1) - 127};
}

int64_t ShiftTowardZero(int64_t value, int shift) {
  if (shift >= 0) return value << shift;
  const int64_t magnitude = std::abs(value) >> std::min(-shift, 63);
  return value < 0 ? -magnitude : magnitude;
}

// The tensor cores and FADD give only one NaN.
uint32_t BitsOf(float value) { return std::isnan(value) ? kNan : std::bit_cast<uint32_t>(value); }

bool IsFinite(uint32_t bits) { return (bits & kInf) != kInf; }

using Rows = Operand<kRows>;
using Columns = Operand<kColumns>;
using Accumulators = std::array<uint32_t, kColumns>;

// Positions along k, in the order of the sums.
struct Block {
  size_t begin, end;
};

// Computes the sums that have an Inf or a NaN among their terms. Finite terms do not change such a
// sum, so WithSpecials may hold significands in place of the values of finite elements.
void SumSpecials(const Rows& a, size_t row, const Columns& b, Block block,
                 const Accumulators& before, Accumulators& after) {
  for (size_t lane = 0; lane < kColumns; ++lane) {
    float sum = IsFinite(before[lane]) ? 0 : std::bit_cast<float>(before[lane]);
    for (size_t k = block.begin; k < block.end; ++k) {
      sum += a.WithSpecials()[k][row] * b.WithSpecials()[k][lane];
    }
    if (!std::isfinite(sum)) after[lane] = BitsOf(sum);
  }
}

// One sum for each accumulator.
void AddBlock(const Sums& sums, const Rows& a, size_t row, const Columns& b, Block block,
              Accumulators& accumulators) {
  const Accumulators before = accumulators;
  std::array<Accumulator, kColumns> terms;
  std::array<int16_t, kColumns> largest;
  bool specials = a.has_specials || b.has_specials;
  for (size_t lane = 0; lane < kColumns; ++lane) {
    terms[lane] = DecodeAccumulator(before[lane]);
    largest[lane] = static_cast<int16_t>(terms[lane].exponent);
    specials |= !IsFinite(before[lane]);
  }
  for (size_t k = block.begin; k < block.end; ++k) {
    const int16_t exponent = a.exponent[k][row];
    for (size_t lane = 0; lane < kColumns; ++lane) {
      largest[lane] = std::max(largest[lane], static_cast<int16_t>(exponent + b.exponent[k][lane]));
    }
  }
  // A product is exact in f32, and so is its scaling. What is left of it is below 2^27, and a block
  // with F = 25 has at most sixteen: their sum fits 32 bits.
  std::array<int32_t, kColumns> products = {};
  for (size_t k = block.begin; k < block.end; ++k) {
    const int16_t exponent = a.exponent[k][row];
    const float significand = a.significand[k][row];
    for (size_t lane = 0; lane < kColumns; ++lane) {
      const auto below = static_cast<int16_t>(exponent + b.exponent[k][lane] - largest[lane]);
      const int shift = std::max<int16_t>(below, kVanished) + sums.fraction_bits;
      const auto scale = std::bit_cast<float>((shift + 127) << 23);
      products[lane] += static_cast<int32_t>(significand * b.significand[k][lane] * scale);
    }
  }
  for (size_t lane = 0; lane < kColumns; ++lane) {
    const int shift = sums.fraction_bits - 23 + terms[lane].exponent - largest[lane];
    const int64_t sum = products[lane] + ShiftTowardZero(terms[lane].significand, shift);
    accumulators[lane] = Encode(sum, largest[lane] - sums.fraction_bits, sums.result_bits);
  }
  if (specials) SumSpecials(a, row, b, block, before, accumulators);
}

void AddHopper(const Sums& sums, const Rows& a, size_t row, const Columns& b, size_t k,
               Accumulators& accumulators) {
  if (!sums.as_f16) return AddBlock(sums, a, row, b, {0, k}, accumulators);
  Accumulators products = {};
  AddBlock(sums, a, row, b, {0, k / 2}, products);
  AddBlock(sums, a, row, b, {k / 2, k}, products);
  for (size_t lane = 0; lane < kColumns; ++lane) {
    accumulators[lane] =
        BitsOf(std::bit_cast<float>(accumulators[lane]) + std::bit_cast<float>(products[lane]));
  }
}

// The operands' significands are their values here.
void AddInOrder(const Rows& a, size_t row, const Columns& b, size_t k, Accumulators& accumulators) {
  auto sums = std::bit_cast<std::array<float, kColumns>>(accumulators);
  for (size_t i = 0; i < k; ++i) {
    for (size_t lane = 0; lane < kColumns; ++lane) {
      sums[lane] += a.significand[i][row] * b.significand[i][lane];
    }
  }
  std::transform(sums.begin(), sums.end(), accumulators.begin(), BitsOf);
}

void CheckShape(Instruction instruction, const TileShape& shape, ElementType a, ElementType b) {
  CHECK(Is8Bit(a) ? Is8Bit(b) : a == b);
  const int bytes = shape.k * (Is8Bit(a) ? 1 : 2);
  CHECK(bytes == 32 || (bytes == 16 && instruction == Instruction::kMma));
}

}  // namespace

void MultiplyAccumulate(Instruction instruction, Arithmetic arithmetic, TileShape shape,
                        const Matrix& a, const Matrix& b, float* accumulators) {
  CheckShape(instruction, shape, a.type, b.type);
  const bool in_order = arithmetic == Arithmetic::kInOrder;
  Sums sums = SumsOf(instruction, a.type, shape.k);
  if (in_order) sums.as_f16 = false;
  const auto k = static_cast<size_t>(shape.k);
  Rows rows;
  Columns columns;
  for (int m = 0; m < shape.m; m += kRows) {
    const int num_rows = std::min(kRows, shape.m - m);
    Load(a, m * a.row_stride, a.row_stride, a.column_stride, num_rows, shape.k, sums.as_f16, rows);
    if (in_order) Scale(k, rows);
    for (int n = 0; n < shape.n; n += kColumns) {
      const int num_columns = std::min(kColumns, shape.n - n);
      Load(b, n * b.column_stride, b.column_stride, b.row_stride, num_columns, shape.k, sums.as_f16,
           columns);
      if (in_order) Scale(k, columns);
      for (int row = 0; row < num_rows; ++row) {
        float* const place = accumulators + static_cast<ptrdiff_t>(m + row) * shape.n + n;
        const size_t bytes = static_cast<size_t>(num_columns) * sizeof(float);
        Accumulators sum = {};
        std::memcpy(sum.data(), place, bytes);
        if (in_order) {
          AddInOrder(rows, static_cast<size_t>(row), columns, k, sum);
        } else {
          AddHopper(sums, rows, static_cast<size_t>(row), columns, k, sum);
        }
        std::memcpy(place, sum.data(), bytes);
      }
    }
  }
}

}  // namespace tokamak::cuda::emulation
