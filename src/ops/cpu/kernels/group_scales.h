// The scales of a group of 32 elements, for kLanes rows of a panel (cpu/panel_layout.h):
//
//   w = scale · (code - offset) + min
//
// Codes are those of CodesOf (kernels/codes.h). The product of a block's f16 scale and an integer
// scale is exact in f32.
#pragma once

#include "ops/cpu/panel_layout.h"

namespace tokamak::cpu {

// Formats with a minimum, and the number of scales per group: two if they cover 16 elements.
constexpr bool HasMin(DType dtype) {
  return dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ2_K ||
         dtype == DType::kQ4_K || dtype == DType::kQ5_K;
}
constexpr int PartsOfGroup(DType dtype) {
  return dtype == DType::kQ2_K || dtype == DType::kQ3_K || dtype == DType::kQ6_K ? 2 : 1;
}

template <class V, DType kDType>
struct GroupScales {
  using F = typename V::F;
  using I = typename V::I;
  static constexpr int kParts = PartsOfGroup(kDType);

  F scale[kParts];
  F min[kParts];  // only if HasMin

  static GroupScales Load(const std::byte* column, int group, int lane) {
    constexpr PanelLayout kLayout = LayoutOf(kDType);
    const std::byte* words = column + kLayout.scale_words;
    GroupScales s;
    if constexpr (kDType == DType::kMXFP4) {
      s.scale[0] = PowerOfTwo(column, lane);
    } else {
      const F d = Half(column, lane);
      if constexpr (kDType == DType::kQ4_1 || kDType == DType::kQ5_1) {
        s.scale[0] = d;
        s.min[0] = Half(column + 2 * kPanelRows, lane);
      } else if constexpr (kDType == DType::kQ4_K || kDType == DType::kQ5_K) {
        const F minus = V::Negate(Half(column + 2 * kPanelRows, lane));
        s.scale[0] = V::Mul(d, Scale6(words, false, group, lane));
        s.min[0] = V::Mul(minus, Scale6(words, true, group, lane));
      } else if constexpr (kDType == DType::kQ2_K) {
        const F minus = V::Negate(Half(column + 2 * kPanelRows, lane));
        for (int i = 0; i < 2; ++i) {
          const I byte = ByteOf(words, 2 * group + i, lane);
          s.scale[i] = V::Mul(d, V::ToFloat(V::And(byte, 0x0f)));
          s.min[i] = V::Mul(minus, V::ToFloat(V::template ShiftRight<4>(byte)));
        }
      } else if constexpr (kDType == DType::kQ3_K) {
        for (int i = 0; i < 2; ++i) s.scale[i] = V::Mul(d, Scale3(words, 2 * group + i, lane));
      } else if constexpr (kDType == DType::kQ6_K) {
        for (int i = 0; i < 2; ++i) {
          const I byte = V::ShiftLeftBy(ByteOf(words, 2 * group + i, lane), 24);
          s.scale[i] = V::Mul(d, V::ToFloat(V::template ShiftRightSigned<24>(byte)));
        }
      } else if constexpr (kDType == DType::kIQ4_XS) {
        const I high = V::LoadUint16(words + 2 * lane);
        const I low = Word(words + 2 * kPanelRows, 0, lane);
        const I code = V::Or(V::And(V::ShiftRightBy(low, 4 * group), 0x0f),
                             V::template ShiftLeft<4>(V::And(V::ShiftRightBy(high, 2 * group), 3)));
        s.scale[0] = V::Mul(d, V::ToFloat(V::AddInt(code, -32)));
      } else {
        s.scale[0] = d;
      }
    }
    return s;
  }

 private:
  // Lanes [lane, lane + kLanes) of a u32[16] or u16[16] array.
  static I Word(const std::byte* array, int index, int lane) {
    return V::LoadInt(array + 4 * (kPanelRows * index + lane));
  }
  static F Half(const std::byte* array, int lane) { return V::LoadHalf(array + 2 * lane); }

  // Byte b of the 16 bytes in four words.
  static I ByteOf(const std::byte* words, int b, int lane) {
    return V::And(V::ShiftRightBy(Word(words, b / 4, lane), 8 * (b % 4)), 0xff);
  }

  // The scale of group `group` of Q4_K or Q5_K, or its min.
  static F Scale6(const std::byte* words, bool min, int group, int lane) {
    const I low = Word(words, min ? 1 : 0, lane);
    if (group < 4) return V::ToFloat(V::And(V::ShiftRightBy(low, 8 * group), 0x3f));
    const int shift = 8 * (group - 4);
    const I nibble = V::And(V::ShiftRightBy(Word(words, 2, lane), shift + (min ? 4 : 0)), 0x0f);
    return V::ToFloat(V::Or(nibble, V::And(V::ShiftRightBy(low, shift + 2), 0x30)));
  }

  // Scale `index` of the 16 scales of Q3_K.
  static F Scale3(const std::byte* words, int index, int lane) {
    const int shift = 8 * (index % 4);
    const I low = V::And(
        V::ShiftRightBy(Word(words, index % 8 / 4, lane), shift + (index < 8 ? 0 : 4)), 0x0f);
    const I top = V::And(V::ShiftRightBy(Word(words, 2, lane), shift + 2 * (index / 4)), 3);
    return V::ToFloat(V::AddInt(V::Or(low, V::template ShiftLeft<4>(top)), -32));
  }

  // 2^(e - 128) for bytes e, as a product of two powers that are never denormal.
  static F PowerOfTwo(const std::byte* bytes, int lane) {
    const I e = V::LoadUint8(bytes + lane);
    const I half = V::template ShiftRight<1>(e);
    const I a = V::template ShiftLeft<23>(V::AddInt(half, 127 - 64));
    const I b = V::template ShiftLeft<23>(V::AddInt(V::SubInt(e, half), 127 - 64));
    return V::Mul(V::AsFloat(a), V::AsFloat(b));
  }
};

}  // namespace tokamak::cpu
