#include "bench/gpu_probe/bits_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

namespace probe {
namespace {

constexpr uint32_t kNan = 0x7FFFFFFF;
constexpr int kZeroExponent = -133;  // a zero takes part in the choice of the largest exponent

// significand * 2^(exponent - fraction bits of the type); a subnormal keeps the least exponent.
struct Number {
  enum class Kind { kFinite, kInf, kNan } kind = Kind::kFinite;
  bool negative = false;
  int64_t significand = 0;
  int exponent = 0;
};

struct Format {
  int exponent_bits;
  int fraction_bits;
  bool has_inf;
};

Format FormatOf(Type type) {
  switch (type) {
    case Type::kBf16:
      return {8, 7, true};
    case Type::kF16:
      return {5, 10, true};
    case Type::kE4m3:
      return {4, 3, false};
  }
  return {};
}

Number Decode(uint32_t bits, const Format& format) {
  const uint32_t exponent_mask = (1u << format.exponent_bits) - 1;
  const uint32_t fraction_mask = (1u << format.fraction_bits) - 1;
  const uint32_t fraction = bits & fraction_mask;
  const uint32_t exponent = bits >> format.fraction_bits & exponent_mask;
  const int bias = static_cast<int>(exponent_mask >> 1);
  Number number;
  number.negative = (bits >> (format.exponent_bits + format.fraction_bits) & 1) != 0;
  if (exponent == exponent_mask && (format.has_inf || fraction == fraction_mask)) {
    number.kind = fraction == 0 ? Number::Kind::kInf : Number::Kind::kNan;
    return number;
  }
  number.significand = exponent == 0 ? fraction : fraction | 1u << format.fraction_bits;
  number.exponent = std::max(1, static_cast<int>(exponent)) - bias;
  return number;
}

uint32_t Element(Type type, const uint8_t* row, int index) {
  if (type == Type::kE4m3) return row[index];
  uint16_t value = 0;
  std::memcpy(&value, row + 2 * index, 2);
  return value;
}

Number Multiply(const Number& a, const Number& b) {
  Number product;
  product.negative = a.negative != b.negative;
  product.significand = a.significand * b.significand;
  product.exponent = a.exponent + b.exponent;
  using Kind = Number::Kind;
  const auto zero = [](const Number& x) { return x.kind == Kind::kFinite && x.significand == 0; };
  if (a.kind == Kind::kNan || b.kind == Kind::kNan) {
    product.kind = Kind::kNan;
  } else if (a.kind == Kind::kInf || b.kind == Kind::kInf) {
    product.kind = zero(a) || zero(b) ? Kind::kNan : Kind::kInf;
  }
  return product;
}

// sum * 2^exponent as f32, cut off after `output_bits` fraction bits.
uint32_t Encode(int64_t sum, int exponent, int output_bits) {
  if (sum == 0) return 0;
  const uint32_t sign = sum < 0 ? 0x80000000u : 0;
  uint64_t magnitude = sum < 0 ? static_cast<uint64_t>(-sum) : static_cast<uint64_t>(sum);
  const int top = 63 - __builtin_clzll(magnitude);
  const int value_exponent = std::max(top + exponent, -126);
  if (value_exponent > 127) return sign | 0x7F800000u;
  const int shift = value_exponent - output_bits - exponent;  // bits to cut off
  if (shift > 63) return sign;
  magnitude = shift >= 0 ? magnitude >> shift : magnitude << -shift;
  if (magnitude == 0) return 0;
  magnitude <<= 23 - output_bits;
  const bool subnormal = (magnitude >> 23) == 0;
  const uint32_t biased = subnormal ? 0 : static_cast<uint32_t>(value_exponent + 127);
  return sign | biased << 23 | (static_cast<uint32_t>(magnitude) & 0x7FFFFF);
}

uint32_t Block(Type type, const DotModel& model, const uint8_t* a, const uint8_t* b,
               const std::vector<int>& elements, uint32_t c) {
  const Format format = FormatOf(type);
  struct Term {
    Number number;
    int fraction_bits;
  };
  std::vector<Term> terms;
  const auto operand = [&](const uint8_t* row, int i) {
    Number number = Decode(Element(type, row, i), format);
    if (model.split != DotModel::Split::kPairsAsF16 || number.significand == 0) return number;
    for (; number.significand >> format.fraction_bits == 0; --number.exponent) {
      number.significand <<= 1;
    }
    return number;
  };
  for (const int i : elements) {
    terms.push_back({Multiply(operand(a, i), operand(b, i)), 2 * format.fraction_bits});
  }
  terms.push_back({Decode(c, {8, 23, true}), 23});
  int largest = kZeroExponent;
  bool positive_inf = false, negative_inf = false;
  for (const auto& [number, bits] : terms) {
    if (number.kind == Number::Kind::kNan) return kNan;
    if (number.kind == Number::Kind::kInf) {
      (number.negative ? negative_inf : positive_inf) = true;
    } else if (number.significand != 0) {
      largest = std::max(largest, number.exponent);
    }
  }
  if (positive_inf && negative_inf) return kNan;
  if (positive_inf || negative_inf) return negative_inf ? 0xFF800000u : 0x7F800000u;
  int64_t sum = 0;
  for (const auto& [number, bits] : terms) {
    const int shift = model.fraction_bits - bits + number.exponent - largest;
    if (shift <= -63) continue;
    const int64_t cut =
        shift >= 0 ? number.significand << std::min(shift, 62) : number.significand >> -shift;
    sum += number.negative ? -cut : cut;
  }
  return Encode(sum, largest - model.fraction_bits, model.output_bits);
}

}  // namespace

uint32_t ModelDot(Type type, const DotModel& model, const uint8_t* a, const uint8_t* b,
                  uint32_t c) {
  const int size = type == Type::kE4m3 ? 1 : 2;
  std::vector<int> first, second;
  for (int i = 0; i < kStepBytes / size; ++i) {
    const bool late = model.split == DotModel::Split::kHalves       ? i * size >= kStepBytes / 2
                      : model.split == DotModel::Split::kPairsAsF16 ? i * size % 4 >= 2
                                                                    : false;
    (late ? second : first).push_back(i);
  }
  if (model.split == DotModel::Split::kPairsAsF16) {
    const uint32_t products = Block(type, model, a, b, second, Block(type, model, a, b, first, 0));
    const float sum = std::bit_cast<float>(products) + std::bit_cast<float>(c);
    return std::isnan(sum) ? kNan : std::bit_cast<uint32_t>(sum);
  }
  c = Block(type, model, a, b, first, c);
  return second.empty() ? c : Block(type, model, a, b, second, c);
}

const char* Name(Inputs inputs) {
  switch (inputs) {
    case Inputs::kNormal:
      return "normal";
    case Inputs::kWide:
      return "wide exponents";
    case Inputs::kCancelling:
      return "cancelling";
    case Inputs::kSubnormal:
      return "subnormal";
    case Inputs::kSpecial:
      return "NaN and Inf";
    case Inputs::kAnyBits:
      return "any bits";
  }
  return "";
}

const char* Name(Type type) {
  switch (type) {
    case Type::kBf16:
      return "bf16";
    case Type::kF16:
      return "f16";
    case Type::kE4m3:
      return "e4m3";
  }
  return "";
}

std::vector<uint8_t> MakeOperand(Type type, Inputs inputs, int rows, int bytes, uint64_t seed,
                                 bool negate) {
  const Format format = FormatOf(type);
  const int size = type == Type::kE4m3 ? 1 : 2;
  const int sign_bit = format.exponent_bits + format.fraction_bits;
  const int exponent_mask = (1 << format.exponent_bits) - 1;
  const int bias = exponent_mask >> 1;
  // Subnormal: products around the least exponents of f32 (bf16) or subnormal operands.
  const int middle = inputs != Inputs::kSubnormal ? bias : type == Type::kBf16 ? bias - 66 : 2;
  const int spread = inputs == Inputs::kWide ? std::min(24, bias - 1) : 3;
  std::mt19937_64 random(seed);
  std::vector<uint8_t> out(static_cast<size_t>(rows) * bytes);
  for (int row = 0; row < rows; ++row) {
    uint32_t previous = 0;
    for (int i = 0; i < bytes / size; ++i) {
      const uint64_t r = random();
      // Small exponents are less frequent, about as in a normal variable.
      const int step = inputs == Inputs::kWide || inputs == Inputs::kSubnormal
                           ? static_cast<int>(r % (2 * spread + 1)) - spread
                           : 1 - std::min(6, __builtin_ctzll(r | 1ull << 40));
      const int exponent = std::clamp(middle + step, 0, exponent_mask - 1);
      uint32_t value = static_cast<uint32_t>(r >> 48) & ((1u << format.fraction_bits) - 1);
      value |= static_cast<uint32_t>(exponent) << format.fraction_bits;
      value |= static_cast<uint32_t>(r >> 47 & 1) << sign_bit;
      if (inputs == Inputs::kAnyBits) value = static_cast<uint32_t>(r >> 40);
      if (inputs == Inputs::kCancelling && i % 2 == 1 && (r >> 40) % 16 != 0) {
        value = previous ^ (negate ? 1u << sign_bit : 0);
        if ((r >> 20) % 8 == 0) value ^= 1;  // almost cancelling
      }
      if (inputs == Inputs::kSpecial && row % 8 == 3 && r % 61 == 0) {
        value = static_cast<uint32_t>(exponent_mask) << format.fraction_bits;
        if (!format.has_inf || r >> 30 & 1) value |= (1u << format.fraction_bits) - 1;
        value |= static_cast<uint32_t>(r >> 31 & 1) << sign_bit;
      }
      if (inputs == Inputs::kSpecial && (r >> 33) % 7 == 0) value = 0;
      previous = value;
      std::memcpy(&out[static_cast<size_t>(row) * bytes + static_cast<size_t>(i) * size], &value,
                  static_cast<size_t>(size));
    }
  }
  return out;
}

std::vector<float> MakeAccumulators(Type type, Inputs inputs, int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> out(static_cast<size_t>(count));
  const int middle = inputs != Inputs::kSubnormal ? 128
                     : type == Type::kBf16        ? 2
                     : type == Type::kF16         ? 127 - 26
                                                  : 127 - 10;
  const int spread = inputs == Inputs::kWide ? 50 : 4;
  for (float& value : out) {
    const uint64_t r = random();
    const int exponent = middle + static_cast<int>(r % (2 * spread + 1)) - spread;
    uint32_t bits = static_cast<uint32_t>(std::clamp(exponent, 0, 254)) << 23;
    bits |= static_cast<uint32_t>(r >> 41) | static_cast<uint32_t>(r >> 40 & 1) << 31;
    if (inputs == Inputs::kAnyBits) bits = static_cast<uint32_t>(r >> 32);
    if ((r >> 8) % 16 == 0) bits &= 0x80000000u;
    if (inputs == Inputs::kSpecial && (r >> 12) % 32 == 0) bits |= 0x7F800000u;
    std::memcpy(&value, &bits, 4);
  }
  return out;
}

}  // namespace probe
