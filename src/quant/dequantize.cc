#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "quant/activation_row.h"
#include "quant/blocks.h"
#include "quant/e4m3.h"
#include "quant/half.h"
#include "quant/quantize.h"

// Each function writes the elements of one block. The order of operations is the gguf package's,
// which makes results bit-identical to it; this needs -ffp-contract=off.

namespace tokamak {
namespace {

void Dequantize(const BlockQ4_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>((block.qs[j] & 0x0f) - 8);
    out[j + 16] = d * static_cast<float>((block.qs[j] >> 4) - 8);
  }
}

void Dequantize(const BlockQ4_1& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float m = HalfToFloat(block.m);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(block.qs[j] & 0x0f) + m;
    out[j + 16] = d * static_cast<float>(block.qs[j] >> 4) + m;
  }
}

// The fifth bit of element j, in place (0 or 16).
int FifthBit(const uint8_t qh[4], int j) { return ((qh[j / 8] >> (j % 8)) & 1) << 4; }

void Dequantize(const BlockQ5_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(((block.qs[j] & 0x0f) | FifthBit(block.qh, j)) - 16);
    out[j + 16] = d * static_cast<float>(((block.qs[j] >> 4) | FifthBit(block.qh, j + 16)) - 16);
  }
}

void Dequantize(const BlockQ5_1& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float m = HalfToFloat(block.m);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>((block.qs[j] & 0x0f) | FifthBit(block.qh, j)) + m;
    out[j + 16] = d * static_cast<float>((block.qs[j] >> 4) | FifthBit(block.qh, j + 16)) + m;
  }
}

void Dequantize(const BlockQ8_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(block.qs[j]) * d;
}

void Dequantize(const BlockQ2_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float dmin = HalfToFloat(block.dmin);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(block.scales[group] & 0x0f);
    const float min = dmin * static_cast<float>(block.scales[group] >> 4);
    const uint8_t* qs = block.qs + 32 * (group / 8) + 16 * (group % 2);
    const int shift = 2 * (group / 2 % 4);
    for (int j = 0; j < 16; ++j) {
      out[16 * group + j] = scale * static_cast<float>((qs[j] >> shift) & 3) - min;
    }
  }
}

void Dequantize(const BlockQ3_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  int8_t scales[16];
  UnpackScalesQ3_K(block.scales, scales);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(scales[group]);
    const uint8_t* qs = block.qs + 32 * (group / 8) + 16 * (group % 2);
    const uint8_t* hmask = block.hmask + 16 * (group % 2);
    const int shift = 2 * (group / 2 % 4);
    for (int j = 0; j < 16; ++j) {
      const int high = (hmask[j] >> (group / 2)) & 1;
      out[16 * group + j] = scale * static_cast<float>(((qs[j] >> shift) & 3) + 4 * high - 4);
    }
  }
}

void Dequantize(const BlockQ4_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float dmin = HalfToFloat(block.dmin);
  uint8_t scales[8], mins[8];
  UnpackScalesQ4_K(block.scales, scales, mins);
  for (int group = 0; group < 8; ++group) {
    const float scale = d * static_cast<float>(scales[group]);
    const float min = dmin * static_cast<float>(mins[group]);
    const uint8_t* qs = block.qs + 32 * (group / 2);
    const int shift = 4 * (group % 2);
    for (int j = 0; j < 32; ++j) {
      out[32 * group + j] = scale * static_cast<float>((qs[j] >> shift) & 0x0f) - min;
    }
  }
}

void Dequantize(const BlockQ5_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float dmin = HalfToFloat(block.dmin);
  uint8_t scales[8], mins[8];
  UnpackScalesQ4_K(block.scales, scales, mins);
  for (int group = 0; group < 8; ++group) {
    const float scale = d * static_cast<float>(scales[group]);
    const float min = dmin * static_cast<float>(mins[group]);
    const uint8_t* qs = block.qs + 32 * (group / 2);
    const int shift = 4 * (group % 2);
    for (int j = 0; j < 32; ++j) {
      const int q = ((qs[j] >> shift) & 0x0f) | (((block.qh[j] >> group) & 1) << 4);
      out[32 * group + j] = scale * static_cast<float>(q) - min;
    }
  }
}

void Dequantize(const BlockQ6_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(block.scales[group]);
    const int half = group / 8;
    const int part = group / 2 % 4;  // 32 elements each
    const uint8_t* ql = block.ql + 64 * half + 32 * (part % 2) + 16 * (group % 2);
    const uint8_t* qh = block.qh + 32 * half + 16 * (group % 2);
    const int low_shift = 4 * (part / 2);
    const int high_shift = 2 * part;
    for (int j = 0; j < 16; ++j) {
      const int q = ((ql[j] >> low_shift) & 0x0f) | (((qh[j] >> high_shift) & 3) << 4);
      out[16 * group + j] = scale * static_cast<float>(q - 32);
    }
  }
}

void Dequantize(const BlockIQ4_NL& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(kIQ4Values[block.qs[j] & 0x0f]);
    out[j + 16] = d * static_cast<float>(kIQ4Values[block.qs[j] >> 4]);
  }
}

void Dequantize(const BlockIQ4_XS& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int group = 0; group < 8; ++group) {
    const int low = (block.scales_l[group / 2] >> (4 * (group % 2))) & 0x0f;
    const int high = (block.scales_h >> (2 * group)) & 3;
    const float scale = d * static_cast<float>((low | (high << 4)) - 32);
    const uint8_t* qs = block.qs + 16 * group;
    for (int j = 0; j < 16; ++j) {
      out[32 * group + j] = scale * static_cast<float>(kIQ4Values[qs[j] & 0x0f]);
      out[32 * group + j + 16] = scale * static_cast<float>(kIQ4Values[qs[j] >> 4]);
    }
  }
}

void Dequantize(const BlockMXFP4& block, float* out) {
  // 2^(e - 128); the two smallest are f32 denormals.
  const uint32_t bits = block.e < 2 ? 0x00200000u << block.e : (block.e - 1u) << 23;
  const float d = std::bit_cast<float>(bits);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(kMXFP4Values[block.qs[j] & 0x0f]);
    out[j + 16] = d * static_cast<float>(kMXFP4Values[block.qs[j] >> 4]);
  }
}

template <typename Block, int kElements>
void DequantizeBlocks(const void* source, int64_t n, float* destination) {
  CHECK(n % kElements == 0);
  const auto* bytes = static_cast<const std::byte*>(source);
  for (int64_t i = 0; i < n / kElements; ++i) {
    Block block;
    std::memcpy(&block, bytes + i * static_cast<int64_t>(sizeof(Block)), sizeof(Block));
    Dequantize(block, destination + i * kElements);
  }
}

template <float (*kConvert)(uint16_t)>
void Convert16(const void* source, int64_t n, float* destination) {
  const auto* bytes = static_cast<const std::byte*>(source);
  for (int64_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, bytes + 2 * i, 2);
    destination[i] = kConvert(bits);
  }
}

}  // namespace

void DequantizeRow(DType dtype, const void* source, int64_t n, float* destination) {
  CHECK(n >= 0);
  if (n == 0) return;
  switch (dtype) {
    case DType::kF32:
      std::memcpy(destination, source, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::kF16:
      return Convert16<HalfToFloat>(source, n, destination);
    case DType::kBF16:
      return Convert16<BFloat16ToFloat>(source, n, destination);
    case DType::kF8E4M3:
      std::transform(static_cast<const uint8_t*>(source), static_cast<const uint8_t*>(source) + n,
                     destination, E4m3ToFloat);
      return;
    case DType::kQ4_0:
      return DequantizeBlocks<BlockQ4_0, 32>(source, n, destination);
    case DType::kQ4_1:
      return DequantizeBlocks<BlockQ4_1, 32>(source, n, destination);
    case DType::kQ5_0:
      return DequantizeBlocks<BlockQ5_0, 32>(source, n, destination);
    case DType::kQ5_1:
      return DequantizeBlocks<BlockQ5_1, 32>(source, n, destination);
    case DType::kQ8_0:
      return DequantizeBlocks<BlockQ8_0, 32>(source, n, destination);
    case DType::kQ2_K:
      return DequantizeBlocks<BlockQ2_K, 256>(source, n, destination);
    case DType::kQ3_K:
      return DequantizeBlocks<BlockQ3_K, 256>(source, n, destination);
    case DType::kQ4_K:
      return DequantizeBlocks<BlockQ4_K, 256>(source, n, destination);
    case DType::kQ5_K:
      return DequantizeBlocks<BlockQ5_K, 256>(source, n, destination);
    case DType::kQ6_K:
      return DequantizeBlocks<BlockQ6_K, 256>(source, n, destination);
    case DType::kIQ4_NL:
      return DequantizeBlocks<BlockIQ4_NL, 32>(source, n, destination);
    case DType::kIQ4_XS:
      return DequantizeBlocks<BlockIQ4_XS, 256>(source, n, destination);
    case DType::kMXFP4:
      return DequantizeBlocks<BlockMXFP4, 32>(source, n, destination);
    case DType::kI8Blocks:
      return DequantizeActivations(source, n, destination);
    case DType::kI8:
    case DType::kI32:
    case DType::kI64:
      break;
  }
  CHECK_MSG(false, "integer types hold no weights");
}

}  // namespace tokamak
