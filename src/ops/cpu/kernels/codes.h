// A group's codes as dot-product instructions take them: word j of a lane holds elements 4j .. 4j +
// 3 of its row, a byte each.
//
// D is a set of SIMD primitives with integer dot products (avx512vnni/dot.h and others). With
// D::kSigned, formats of eight bits give signed codes, because D's products take only signed bytes,
// or saturate on large unsigned ones.
#pragma once

#include "ops/cpu/kernels/code_book.h"
#include "ops/cpu/panel_layout.h"

namespace tokamak::cpu {

template <class D, DType kDType>
struct CodesOf {
  using I = typename D::I;
  static constexpr PanelLayout kLayout = LayoutOf(kDType);
  static constexpr bool kEightBits =
      kDType == DType::kQ8_0 || kDType == DType::kIQ4_NL || kDType == DType::kIQ4_XS;
  static constexpr bool kSigned = kEightBits && D::kSigned;

  // A code's value is code - Offset(), and no code is larger in size than Top().
  static constexpr int Offset() {
    switch (kDType) {
      case DType::kQ4_0:
        return 8;
      case DType::kQ5_0:
        return 16;
      case DType::kQ3_K:
        return 4;
      case DType::kQ6_K:
        return 32;
      case DType::kMXFP4:
        return 12;
      default:
        return kEightBits && !D::kSigned ? 128 : 0;
    }
  }
  static constexpr int Top() {
    switch (kDType) {
      case DType::kQ2_K:
        return 3;
      case DType::kQ3_K:
        return 7;
      case DType::kMXFP4:
        return 24;
      case DType::kQ5_0:
      case DType::kQ5_1:
      case DType::kQ5_K:
        return 31;
      case DType::kQ6_K:
        return 63;
      case DType::kQ8_0:
      case DType::kIQ4_NL:
      case DType::kIQ4_XS:
        return D::kSigned ? 128 : 255;
      default:
        return 15;
    }
  }

  // Word kJ for the lanes starting at `lane`.
  template <int kJ>
  [[gnu::always_inline]] static inline I Word(const std::byte* group, int lane) {
    if constexpr (kDType == DType::kQ8_0) {
      const I word = Load(group, kJ, lane);
      return kSigned ? word : D::Xor(word, kHighBits);
    } else if constexpr (kDType == DType::kQ2_K) {
      return Pairs<kJ, 0>(group, lane);
    } else if constexpr (kDType == DType::kQ3_K) {
      return D::Or(Pairs<kJ, 0>(group, lane), Bit<kJ, 2>(group, lane));
    } else {
      constexpr int kNibbles = 0x0f0f0f0f;
      const I both = Load(group, kJ / 2, lane);
      const I low = D::And(kJ % 2 == 0 ? both : D::template ShiftRight<4>(both), kNibbles);
      if constexpr (kLayout.bits >= 0) {
        return D::Or(low, Bit<kJ, 4>(group, lane));
      } else if constexpr (kDType == DType::kQ6_K) {
        return D::Or(low, Pairs<kJ, 4>(group, lane));
      } else if constexpr (kEightBits || kDType == DType::kMXFP4) {
        return D::LookupBytes(low, kTable.values);
      } else {
        return low;
      }
    }
  }

 private:
  static constexpr int kHighBits = static_cast<int>(0x80808080u);

  static I Load(const std::byte* words, int index, int lane) {
    return D::LoadInt(words + 4 * (kPanelRows * index + lane));
  }

  // Moves bits from kFrom to kTo in each byte. `mask` selects the bits at the destination.
  template <int kFrom, int kTo>
  static I Move(I word, int mask) {
    if constexpr (kFrom >= kTo) {
      return D::And(D::template ShiftRight<kFrom - kTo>(word), mask);
    } else {
      return D::And(D::template ShiftLeft<kTo - kFrom>(word), mask);
    }
  }
  template <int kJ, int kTo>
  static I Pairs(const std::byte* group, int lane) {
    const I word = Load(group + kLayout.codes2, kJ / 4, lane);
    return Move<2 * (kJ % 4), kTo>(word, 0x03030303 << kTo);
  }
  template <int kJ, int kTo>
  static I Bit(const std::byte* group, int lane) {
    return Move<kJ, kTo>(Load(group + kLayout.bits, 0, lane), 0x01010101 << kTo);
  }

  // The code book's values plus Offset(), as bytes.
  alignas(16) static constexpr auto kTable =
      CodeBook<uint8_t>(kDType == DType::kMXFP4 ? kMXFP4Values : kIQ4Values, Offset());
};

}  // namespace tokamak::cpu
