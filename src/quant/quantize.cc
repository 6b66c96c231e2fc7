#include "quant/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "quant/activation_row.h"
#include "quant/blocks.h"
#include "quant/e4m3.h"
#include "quant/half.h"

// Plain rounding: scales come from the extremes of a group, codes are the nearest. Input that is
// not finite gives some valid block, never undefined behavior.

namespace tokamak {
namespace {

// The nearest integer (ties to even) within [low, high]; `low` for NaN.
int RoundClamped(float x, int low, int high) {
  if (!(x > static_cast<float>(low))) return low;
  if (x >= static_cast<float>(high)) return high;
  return static_cast<int>(std::nearbyintf(x));
}

float Inverse(float d) { return d == 0 ? 0 : 1 / d; }

struct Range {
  float min, max;
};
Range RangeOf(const float* x, int n) {
  Range range = {x[0], x[0]};
  for (int i = 1; i < n; ++i) {
    range.min = std::min(range.min, x[i]);
    range.max = std::max(range.max, x[i]);
  }
  return range;
}

// The value of largest magnitude, with its sign.
float ExtremeOf(const float* x, int n) {
  float extreme = 0;
  for (int i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  }
  return extreme;
}

// Index of the entry of a 16-entry code book nearest to `x`, the lower index on a tie.
int NearestCode(const std::array<int8_t, 16>& codes, float x) {
  int best = 0;
  float best_error = INFINITY;
  for (int i = 0; i < 16; ++i) {
    const float error = std::fabs(x - static_cast<float>(codes[static_cast<size_t>(i)]));
    if (error < best_error) {
      best = i;
      best_error = error;
    }
  }
  return best;
}

// Stores 32 codes as nibbles, element j + 16 in the high half of byte j; a fifth bit goes to `qh`.
void PackNibbles(const int codes[32], uint8_t qs[16], uint8_t* qh = nullptr) {
  for (int j = 0; j < 16; ++j) {
    qs[j] = static_cast<uint8_t>((codes[j] & 0x0f) | ((codes[j + 16] & 0x0f) << 4));
  }
  if (qh == nullptr) return;
  std::memset(qh, 0, 4);
  for (int j = 0; j < 32; ++j) qh[j / 8] |= static_cast<uint8_t>((codes[j] >> 4) << (j % 8));
}

void Quantize(const float* x, BlockQ4_0* block) {
  block->d = FloatToHalf(ExtremeOf(x, 32) / -8);
  const float inverse = Inverse(HalfToFloat(block->d));
  int codes[32];
  for (int j = 0; j < 32; ++j) codes[j] = RoundClamped(x[j] * inverse, -8, 7) + 8;
  PackNibbles(codes, block->qs);
}

void Quantize(const float* x, BlockQ4_1* block) {
  const Range range = RangeOf(x, 32);
  block->d = FloatToHalf((range.max - range.min) / 15);
  block->m = FloatToHalf(range.min);
  const float inverse = Inverse(HalfToFloat(block->d));
  const float m = HalfToFloat(block->m);
  int codes[32];
  for (int j = 0; j < 32; ++j) codes[j] = RoundClamped((x[j] - m) * inverse, 0, 15);
  PackNibbles(codes, block->qs);
}

void Quantize(const float* x, BlockQ5_0* block) {
  block->d = FloatToHalf(ExtremeOf(x, 32) / -16);
  const float inverse = Inverse(HalfToFloat(block->d));
  int codes[32];
  for (int j = 0; j < 32; ++j) codes[j] = RoundClamped(x[j] * inverse, -16, 15) + 16;
  PackNibbles(codes, block->qs, block->qh);
}

void Quantize(const float* x, BlockQ5_1* block) {
  const Range range = RangeOf(x, 32);
  block->d = FloatToHalf((range.max - range.min) / 31);
  block->m = FloatToHalf(range.min);
  const float inverse = Inverse(HalfToFloat(block->d));
  const float m = HalfToFloat(block->m);
  int codes[32];
  for (int j = 0; j < 32; ++j) codes[j] = RoundClamped((x[j] - m) * inverse, 0, 31);
  PackNibbles(codes, block->qs, block->qh);
}

void Quantize(const float* x, BlockQ8_0* block) {
  block->d = FloatToHalf(std::fabs(ExtremeOf(x, 32)) / 127);
  const float inverse = Inverse(HalfToFloat(block->d));
  for (int j = 0; j < 32; ++j) {
    block->qs[j] = static_cast<int8_t>(RoundClamped(x[j] * inverse, -127, 127));
  }
}

// Scales of the groups of a super-block with offsets: x ≈ d · scale · q - dmin · min, with integers
// scale and min in [0, max_scale] and q in [0, max_code].
struct OffsetScales {
  uint16_t d, dmin;  // f16
  int scales[16], mins[16];
};
OffsetScales ChooseOffsetScales(const float* x, int groups, int max_scale, int max_code) {
  const int size = kSuperBlockElements / groups;
  float steps[16], offsets[16];
  float max_step = 0, max_offset = 0;
  for (int g = 0; g < groups; ++g) {
    const Range range = RangeOf(x + g * size, size);
    offsets[g] = std::max(0.0f, -range.min);  // mins are unsigned: an offset can only lower values
    steps[g] = std::max(0.0f, range.max + offsets[g]) / static_cast<float>(max_code);
    max_step = std::max(max_step, steps[g]);
    max_offset = std::max(max_offset, offsets[g]);
  }
  OffsetScales result = {};
  result.d = FloatToHalf(max_step / static_cast<float>(max_scale));
  result.dmin = FloatToHalf(max_offset / static_cast<float>(max_scale));
  const float inverse_d = Inverse(HalfToFloat(result.d));
  const float inverse_dmin = Inverse(HalfToFloat(result.dmin));
  for (int g = 0; g < groups; ++g) {
    // Rounded up, so that the largest value is always in range.
    result.scales[g] = RoundClamped(std::ceil(steps[g] * inverse_d), 0, max_scale);
    result.mins[g] = RoundClamped(offsets[g] * inverse_dmin, 0, max_scale);
  }
  return result;
}

int OffsetCode(const OffsetScales& s, int group, float x, int max_code) {
  const float step = HalfToFloat(s.d) * static_cast<float>(s.scales[group]);
  const float offset = HalfToFloat(s.dmin) * static_cast<float>(s.mins[group]);
  return RoundClamped((x + offset) * Inverse(step), 0, max_code);
}

void Quantize(const float* x, BlockQ2_K* block) {
  const OffsetScales s = ChooseOffsetScales(x, 16, 15, 3);
  std::memset(block, 0, sizeof(*block));
  block->d = s.d;
  block->dmin = s.dmin;
  for (int i = 0; i < 256; ++i) {
    const int group = i / 16;
    block->scales[group] = static_cast<uint8_t>(s.scales[group] | (s.mins[group] << 4));
    const int code = OffsetCode(s, group, x[i], 3);
    block->qs[32 * (i / 128) + i % 32] |= static_cast<uint8_t>(code << (2 * (i / 32 % 4)));
  }
}

// The inverse of UnpackScalesQ4_K.
void PackScalesQ4_K(const OffsetScales& s, uint8_t packed[12]) {
  for (int i = 0; i < 4; ++i) {
    packed[i] = static_cast<uint8_t>(s.scales[i] | ((s.scales[i + 4] >> 4) << 6));
    packed[i + 4] = static_cast<uint8_t>(s.mins[i] | ((s.mins[i + 4] >> 4) << 6));
    packed[i + 8] = static_cast<uint8_t>((s.scales[i + 4] & 0x0f) | ((s.mins[i + 4] & 0x0f) << 4));
  }
}

void Quantize(const float* x, BlockQ4_K* block) {
  const OffsetScales s = ChooseOffsetScales(x, 8, 63, 15);
  std::memset(block, 0, sizeof(*block));
  block->d = s.d;
  block->dmin = s.dmin;
  PackScalesQ4_K(s, block->scales);
  for (int i = 0; i < 256; ++i) {
    const int code = OffsetCode(s, i / 32, x[i], 15);
    block->qs[32 * (i / 64) + i % 32] |= static_cast<uint8_t>(code << (4 * (i / 32 % 2)));
  }
}

void Quantize(const float* x, BlockQ5_K* block) {
  const OffsetScales s = ChooseOffsetScales(x, 8, 63, 31);
  std::memset(block, 0, sizeof(*block));
  block->d = s.d;
  block->dmin = s.dmin;
  PackScalesQ4_K(s, block->scales);
  for (int i = 0; i < 256; ++i) {
    const int code = OffsetCode(s, i / 32, x[i], 31);
    block->qs[32 * (i / 64) + i % 32] |= static_cast<uint8_t>((code & 0x0f) << (4 * (i / 32 % 2)));
    block->qh[i % 32] |= static_cast<uint8_t>((code >> 4) << (i / 32));
  }
}

// Scales of the groups of a super-block without offsets: x ≈ d · scale · q. The scale is a signed
// integer in [min_scale, max_scale], chosen so that the group's extreme is `extreme_code` steps
// away.
struct SignedScales {
  uint16_t d;  // f16
  int scales[16];
};
SignedScales ChooseSignedScales(const float* x, int groups, int min_scale, int max_scale,
                                int extreme_code) {
  const int size = kSuperBlockElements / groups;
  float steps[16];
  for (int g = 0; g < groups; ++g) {
    steps[g] = ExtremeOf(x + g * size, size) / static_cast<float>(extreme_code);
  }
  SignedScales result = {};
  result.d = FloatToHalf(ExtremeOf(steps, groups) / static_cast<float>(min_scale));
  const float inverse = Inverse(HalfToFloat(result.d));
  for (int g = 0; g < groups; ++g) {
    // Rounded away from zero, so that the extreme is always in range.
    const float scale = steps[g] * inverse;
    result.scales[g] =
        RoundClamped(std::copysign(std::ceil(std::fabs(scale)), scale), min_scale, max_scale);
  }
  return result;
}

void Quantize(const float* x, BlockQ3_K* block) {
  const SignedScales s = ChooseSignedScales(x, 16, -32, 31, -4);
  std::memset(block, 0, sizeof(*block));
  block->d = s.d;
  for (int g = 0; g < 16; ++g) {
    const int stored = s.scales[g] + 32;
    block->scales[g % 8] |= static_cast<uint8_t>((stored & 0x0f) << (g < 8 ? 0 : 4));
    block->scales[8 + g % 4] |= static_cast<uint8_t>((stored >> 4) << (2 * (g / 4)));
  }
  for (int i = 0; i < 256; ++i) {
    const float step = HalfToFloat(s.d) * static_cast<float>(s.scales[i / 16]);
    const int code = RoundClamped(x[i] * Inverse(step), -4, 3) + 4;
    block->qs[32 * (i / 128) + i % 32] |= static_cast<uint8_t>((code & 3) << (2 * (i / 32 % 4)));
    block->hmask[i % 32] |= static_cast<uint8_t>((code >> 2) << (i / 32));
  }
}

void Quantize(const float* x, BlockQ6_K* block) {
  const SignedScales s = ChooseSignedScales(x, 16, -128, 127, -32);
  std::memset(block, 0, sizeof(*block));
  block->d = s.d;
  for (int g = 0; g < 16; ++g) block->scales[g] = static_cast<int8_t>(s.scales[g]);
  for (int i = 0; i < 256; ++i) {
    const float step = HalfToFloat(s.d) * static_cast<float>(s.scales[i / 16]);
    const int code = RoundClamped(x[i] * Inverse(step), -32, 31) + 32;
    const int half = i / 128, part = i / 32 % 4, j = i % 32;
    block->ql[64 * half + 32 * (part % 2) + j] |=
        static_cast<uint8_t>((code & 0x0f) << (4 * (part / 2)));
    block->qh[32 * half + j] |= static_cast<uint8_t>((code >> 4) << (2 * part));
  }
}

void Quantize(const float* x, BlockIQ4_NL* block) {
  block->d = FloatToHalf(ExtremeOf(x, 32) / kIQ4Values[0]);
  const float inverse = Inverse(HalfToFloat(block->d));
  int codes[32];
  for (int j = 0; j < 32; ++j) codes[j] = NearestCode(kIQ4Values, x[j] * inverse);
  PackNibbles(codes, block->qs);
}

void Quantize(const float* x, BlockIQ4_XS* block) {
  const SignedScales s = ChooseSignedScales(x, 8, -32, 31, kIQ4Values[0]);
  std::memset(block, 0, sizeof(*block));
  block->d = s.d;
  for (int g = 0; g < 8; ++g) {
    const int stored = s.scales[g] + 32;
    block->scales_l[g / 2] |= static_cast<uint8_t>((stored & 0x0f) << (4 * (g % 2)));
    block->scales_h = static_cast<uint16_t>(block->scales_h | ((stored >> 4) << (2 * g)));
    const float inverse = Inverse(HalfToFloat(s.d) * static_cast<float>(s.scales[g]));
    int codes[32];
    for (int j = 0; j < 32; ++j) codes[j] = NearestCode(kIQ4Values, x[32 * g + j] * inverse);
    PackNibbles(codes, block->qs + 16 * g);
  }
}

void Quantize(const float* x, BlockMXFP4* block) {
  // The largest element gets exponent 2 (4 ... 6), as OCP chooses the shared scale.
  const float extreme = std::fabs(ExtremeOf(x, 32));
  const int exponent = extreme > 0 && std::isfinite(extreme) ? std::ilogb(extreme) - 2 + 127 : 0;
  block->e = static_cast<uint8_t>(std::clamp(exponent, 0, 254));
  int codes[32];
  for (int j = 0; j < 32; ++j) {
    codes[j] = NearestCode(kMXFP4Values, std::ldexp(x[j], 128 - block->e));
  }
  PackNibbles(codes, block->qs);
}

template <typename Block, int kElements>
void QuantizeBlocks(const float* source, int64_t n, void* destination) {
  CHECK(n % kElements == 0);
  auto* bytes = static_cast<std::byte*>(destination);
  for (int64_t i = 0; i < n / kElements; ++i) {
    Block block;
    Quantize(source + i * kElements, &block);
    std::memcpy(bytes + i * static_cast<int64_t>(sizeof(Block)), &block, sizeof(Block));
  }
}

template <uint16_t (*kConvert)(float)>
void Convert16(const float* source, int64_t n, void* destination) {
  auto* bytes = static_cast<std::byte*>(destination);
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t bits = kConvert(source[i]);
    std::memcpy(bytes + 2 * i, &bits, 2);
  }
}

}  // namespace

void QuantizeRow(DType dtype, const float* source, int64_t n, void* destination) {
  CHECK(n >= 0);
  if (n == 0) return;
  switch (dtype) {
    case DType::kF32:
      std::memcpy(destination, source, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::kF16:
      return Convert16<FloatToHalf>(source, n, destination);
    case DType::kBF16:
      return Convert16<FloatToBFloat16>(source, n, destination);
    case DType::kF8E4M3:
      std::transform(source, source + n, static_cast<uint8_t*>(destination), FloatToE4m3);
      return;
    case DType::kQ4_0:
      return QuantizeBlocks<BlockQ4_0, 32>(source, n, destination);
    case DType::kQ4_1:
      return QuantizeBlocks<BlockQ4_1, 32>(source, n, destination);
    case DType::kQ5_0:
      return QuantizeBlocks<BlockQ5_0, 32>(source, n, destination);
    case DType::kQ5_1:
      return QuantizeBlocks<BlockQ5_1, 32>(source, n, destination);
    case DType::kQ8_0:
      return QuantizeBlocks<BlockQ8_0, 32>(source, n, destination);
    case DType::kQ2_K:
      return QuantizeBlocks<BlockQ2_K, 256>(source, n, destination);
    case DType::kQ3_K:
      return QuantizeBlocks<BlockQ3_K, 256>(source, n, destination);
    case DType::kQ4_K:
      return QuantizeBlocks<BlockQ4_K, 256>(source, n, destination);
    case DType::kQ5_K:
      return QuantizeBlocks<BlockQ5_K, 256>(source, n, destination);
    case DType::kQ6_K:
      return QuantizeBlocks<BlockQ6_K, 256>(source, n, destination);
    case DType::kIQ4_NL:
      return QuantizeBlocks<BlockIQ4_NL, 32>(source, n, destination);
    case DType::kIQ4_XS:
      return QuantizeBlocks<BlockIQ4_XS, 256>(source, n, destination);
    case DType::kMXFP4:
      return QuantizeBlocks<BlockMXFP4, 32>(source, n, destination);
    case DType::kI8Blocks:
      return QuantizeActivations(source, n, destination);
    case DType::kI8:
    case DType::kI32:
    case DType::kI64:
      break;
  }
  CHECK_MSG(false, "integer types hold no weights");
}

}  // namespace tokamak
