// Panels (cpu/panel_layout.h) to f32 tiles [k][16], for every weight type. A lane is a row, so that
// scales are vectors and each code is one shift and mask away. The values are bit for bit those of
// DequantizeRow: products of a code and its scale are exact in f32 wherever something is added to
// them, so that a fused multiply-add rounds once, as they do.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/panel_layout.h"

namespace tokamak::cpu {

template <int kValue>
struct Constant {
  static constexpr int value = kValue;  // NOLINT(readability-identifier-naming): as in std
};

// Calls body(Constant<0>()) ... body(Constant<kCount - 1>()).
template <int kCount, typename Body>
[[gnu::always_inline]] inline void Unroll(Body body) {
  if constexpr (kCount > 0) {
    Unroll<kCount - 1>(body);
    body(Constant<kCount - 1>());
  }
}

template <class V>
struct Unpack {
  using F = typename V::F;
  using I = typename V::I;
  static constexpr int kLanes = V::kLanes;

  static void Run(DType dtype, const std::byte* panel, int64_t k_begin, int64_t k_count,
                  float* tile) {
    switch (dtype) {
      case DType::kF32:
        return Plain<4>(panel, k_begin, k_count, tile, [](const std::byte* p) {
          return V::Load(reinterpret_cast<const float*>(p));
        });
      case DType::kF16:
        return Plain<2>(panel, k_begin, k_count, tile, V::LoadHalf);
      case DType::kBF16:
        return Plain<2>(panel, k_begin, k_count, tile, V::LoadBFloat16);
      case DType::kQ4_0:
        return Blocks<DType::kQ4_0>(panel, k_begin, k_count, tile);
      case DType::kQ4_1:
        return Blocks<DType::kQ4_1>(panel, k_begin, k_count, tile);
      case DType::kQ5_0:
        return Blocks<DType::kQ5_0>(panel, k_begin, k_count, tile);
      case DType::kQ5_1:
        return Blocks<DType::kQ5_1>(panel, k_begin, k_count, tile);
      case DType::kQ8_0:
        return Blocks<DType::kQ8_0>(panel, k_begin, k_count, tile);
      case DType::kQ2_K:
        return Blocks<DType::kQ2_K>(panel, k_begin, k_count, tile);
      case DType::kQ3_K:
        return Blocks<DType::kQ3_K>(panel, k_begin, k_count, tile);
      case DType::kQ4_K:
        return Blocks<DType::kQ4_K>(panel, k_begin, k_count, tile);
      case DType::kQ5_K:
        return Blocks<DType::kQ5_K>(panel, k_begin, k_count, tile);
      case DType::kQ6_K:
        return Blocks<DType::kQ6_K>(panel, k_begin, k_count, tile);
      case DType::kIQ4_NL:
        return Blocks<DType::kIQ4_NL>(panel, k_begin, k_count, tile);
      case DType::kIQ4_XS:
        return Blocks<DType::kIQ4_XS>(panel, k_begin, k_count, tile);
      case DType::kMXFP4:
        return Blocks<DType::kMXFP4>(panel, k_begin, k_count, tile);
      case DType::kI8:
      case DType::kI32:
      case DType::kI64:
        return;
    }
  }

 private:
  // As quant/blocks.h has them, in f32.
  alignas(64) static constexpr float kIQ4Table[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};
  alignas(64) static constexpr float kMXFP4Table[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                        0, -1, -2, -3, -4, -6, -8, -12};

  template <int kBytes, typename Read>
  static void Plain(const std::byte* panel, int64_t k_begin, int64_t k_count, float* tile,
                    Read read) {
    panel += k_begin * kPanelRows * kBytes;
    for (int64_t i = 0; i < k_count * kPanelRows; i += kLanes) {
      V::Store(tile + i, read(panel + i * kBytes));
    }
  }

  template <DType kDType>
  static void Blocks(const std::byte* panel, int64_t k_begin, int64_t k_count, float* tile) {
    constexpr PanelLayout kLayout = LayoutOf(kDType);
    for (int64_t k = k_begin; k < k_begin + k_count; k += 32, tile += 32 * kPanelRows) {
      const std::byte* column = panel + k / kLayout.elements * kLayout.bytes;
      const int group = static_cast<int>(k % kLayout.elements / 32);
      for (int lane = 0; lane < kPanelRows; lane += kLanes) {
        Group<kDType>(column, group, lane, tile + lane);
      }
    }
  }

  // Lanes [lane, lane + kLanes) of a u32[16] or u16[16] array.
  static I Word(const std::byte* array, int index, int lane) {
    return V::LoadInt(array + 4 * (kPanelRows * index + lane));
  }
  static F Half(const std::byte* array, int lane) { return V::LoadHalf(array + 2 * lane); }

  // Bits [from, from + width) of each word, moved to bit `to`; `mask` is at the destination.
  template <int kFrom, int kTo, int kMask>
  static I Bits(I word) {
    if constexpr (kFrom >= kTo) {
      return V::And(V::template ShiftRight<kFrom - kTo>(word), kMask);
    } else {
      return V::And(V::template ShiftLeft<kTo - kFrom>(word), kMask);
    }
  }

  // Calls make(Constant<k>(), word) for the 32 elements of a group, `word` being the codes4 word
  // shifted so that the code is its low four bits (others above it), and stores the results.
  template <typename Make>
  [[gnu::always_inline]] static inline void Codes4(const std::byte* codes, int lane, float* out,
                                                   Make make) {
    Unroll<4>([&](auto j) {
      const I word = Word(codes, decltype(j)::value, lane);
      Unroll<8>([&](auto e) {
        constexpr int kElement = decltype(e)::value;
        constexpr int kShift = kElement < 4 ? 8 * kElement : 8 * (kElement - 4) + 4;
        constexpr int kK = 8 * decltype(j)::value + kElement;
        V::Store(out + kK * kPanelRows, make(Constant<kK>(), V::template ShiftRight<kShift>(word)));
      });
    });
  }

  // The same for codes2, moved to bit kTo: make(Constant<k>(), bits).
  template <int kTo, typename Make>
  [[gnu::always_inline]] static inline void Codes2(const std::byte* codes, int lane, float* out,
                                                   Make make) {
    const I words[2] = {Word(codes, 0, lane), Word(codes, 1, lane)};
    Unroll<32>([&](auto k) {
      constexpr int kK = decltype(k)::value;
      V::Store(out + kK * kPanelRows, make(k, Pair<kK, kTo>(words[kK / 16])));
    });
  }
  template <int kK, int kTo>
  static I Pair(I word) {
    return Bits<8 * (kK % 4) + 2 * (kK % 16 / 4), kTo, 3 << kTo>(word);
  }

  // A scale of Q4_K or Q5_K (kMin = false) or its min, of group `group`.
  static F Scale6(const std::byte* words, bool min, int group, int lane) {
    const I low = Word(words, min ? 1 : 0, lane);
    if (group < 4) return V::ToFloat(V::And(V::ShiftRightBy(low, 8 * group), 0x3f));
    const int shift = 8 * (group - 4);
    const I nibble = V::And(V::ShiftRightBy(Word(words, 2, lane), shift + (min ? 4 : 0)), 0x0f);
    return V::ToFloat(V::Or(nibble, V::And(V::ShiftRightBy(low, shift + 2), 0x30)));
  }

  // Byte b of 16 bytes in four words.
  static I ByteOf(const std::byte* words, int b, int lane) {
    return V::And(V::ShiftRightBy(Word(words, b / 4, lane), 8 * (b % 4)), 0xff);
  }

  // 32 elements of kLanes rows.
  template <DType kDType>
  static void Group(const std::byte* column, int group, int lane, float* out) {
    constexpr PanelLayout kLayout = LayoutOf(kDType);
    const std::byte* data = column + kLayout.groups + group * kLayout.group_bytes;
    const std::byte* scales = column + kLayout.scale_words;
    const std::byte* second = column + 2 * kPanelRows;  // the second f16 array
    if constexpr (kDType == DType::kQ4_0) {
      const F d = Half(column, lane);
      Codes4(data, lane, out,
             [&](auto, I code) { return V::Mul(d, V::template Nibble<-8>(code)); });
    } else if constexpr (kDType == DType::kQ4_1) {
      const F d = Half(column, lane), m = Half(second, lane);
      Codes4(data, lane, out,
             [&](auto, I code) { return V::Fma(d, V::template Nibble<0>(code), m); });
    } else if constexpr (kDType == DType::kQ5_0 || kDType == DType::kQ5_1) {
      Group5(column, data, lane, out, kDType == DType::kQ5_1);
    } else if constexpr (kDType == DType::kQ8_0) {
      Group8(column, data, lane, out);
    } else if constexpr (kDType == DType::kQ2_K) {
      Group2K(column, scales, data, group, lane, out);
    } else if constexpr (kDType == DType::kQ3_K) {
      Group3K(column, scales, data, data + kLayout.bits, group, lane, out);
    } else if constexpr (kDType == DType::kQ4_K) {
      const F scale = V::Mul(Half(column, lane), Scale6(scales, false, group, lane));
      const F min = V::Mul(Half(second, lane), Scale6(scales, true, group, lane));
      const F minus = V::Negate(min);
      Codes4(data, lane, out,
             [&](auto, I code) { return V::Fma(scale, V::template Nibble<0>(code), minus); });
    } else if constexpr (kDType == DType::kQ5_K) {
      const F scale = V::Mul(Half(column, lane), Scale6(scales, false, group, lane));
      const F min = V::Mul(Half(second, lane), Scale6(scales, true, group, lane));
      const F minus = V::Negate(min);
      const I bits = Word(data + kLayout.bits, 0, lane);
      Codes4(data, lane, out, [&](auto k, I code) {
        return V::Fma(scale, V::ToFloat(Code5<decltype(k)::value>(code, bits)), minus);
      });
    } else if constexpr (kDType == DType::kQ6_K) {
      Group6K(column, scales, data, data + kLayout.codes2, group, lane, out);
    } else if constexpr (kDType == DType::kIQ4_NL) {
      const F d = Half(column, lane);
      Codes4(data, lane, out, [&](auto, I code) { return V::Mul(d, V::Lookup(code, kIQ4Table)); });
    } else if constexpr (kDType == DType::kIQ4_XS) {
      GroupIQ4XS(column, scales, data, group, lane, out);
    } else if constexpr (kDType == DType::kMXFP4) {
      GroupMXFP4(column, data, lane, out);
    }
  }

  // The five-bit code of element k.
  template <int kK>
  static I Code5(I low, I bits) {
    return V::Or(V::And(low, 0x0f), Bits<kK, 4, 0x10>(bits));
  }

  static void Group5(const std::byte* column, const std::byte* data, int lane, float* out,
                     bool with_min) {
    const F d = Half(column, lane);
    const I bits = Word(data + 4 * 4 * kPanelRows, 0, lane);
    if (with_min) {
      const F m = Half(column + 2 * kPanelRows, lane);
      Codes4(data, lane, out, [&](auto k, I code) {
        return V::Fma(d, V::ToFloat(Code5<decltype(k)::value>(code, bits)), m);
      });
    } else {
      Codes4(data, lane, out, [&](auto k, I code) {
        return V::Mul(d, V::ToFloat(V::AddInt(Code5<decltype(k)::value>(code, bits), -16)));
      });
    }
  }

  static void Group8(const std::byte* column, const std::byte* data, int lane, float* out) {
    const F d = Half(column, lane);
    Unroll<8>([&](auto j) {
      const I word = Word(data, decltype(j)::value, lane);
      Unroll<4>([&](auto b) {
        constexpr int kByte = decltype(b)::value;
        constexpr int kK = 4 * decltype(j)::value + kByte;
        const I code =
            V::template ShiftRightSigned<24>(V::template ShiftLeft<24 - 8 * kByte>(word));
        V::Store(out + kK * kPanelRows, V::Mul(V::ToFloat(code), d));
      });
    });
  }

  static void Group2K(const std::byte* column, const std::byte* scales, const std::byte* data,
                      int group, int lane, float* out) {
    const F d = Half(column, lane), dmin = Half(column + 2 * kPanelRows, lane);
    F scale[2], minus[2];  // of the group's halves
    for (int i = 0; i < 2; ++i) {
      const I byte = ByteOf(scales, 2 * group + i, lane);
      scale[i] = V::Mul(d, V::ToFloat(V::And(byte, 0x0f)));
      minus[i] = V::Negate(V::Mul(dmin, V::ToFloat(V::template ShiftRight<4>(byte))));
    }
    Codes2<0>(data, lane, out, [&](auto k, I code) {
      constexpr int kHalf = decltype(k)::value / 16;
      return V::Fma(scale[kHalf], V::ToFloat(code), minus[kHalf]);
    });
  }

  static void Group3K(const std::byte* column, const std::byte* scales, const std::byte* data,
                      const std::byte* high, int group, int lane, float* out) {
    const F d = Half(column, lane);
    F scale[2];
    for (int i = 0; i < 2; ++i) {
      const int index = 2 * group + i;
      const int shift = 8 * (index % 4);
      const I low = V::And(
          V::ShiftRightBy(Word(scales, index % 8 / 4, lane), shift + (index < 8 ? 0 : 4)), 0x0f);
      const I top = V::And(V::ShiftRightBy(Word(scales, 2, lane), shift + 2 * (index / 4)), 3);
      const I code = V::AddInt(V::Or(low, V::template ShiftLeft<4>(top)), -32);
      scale[i] = V::Mul(d, V::ToFloat(code));
    }
    const I bits = Word(high, 0, lane);
    Codes2<0>(data, lane, out, [&](auto k, I code) {
      constexpr int kK = decltype(k)::value;
      const I full = V::AddInt(V::Or(code, Bits<kK, 2, 4>(bits)), -4);
      return V::Mul(scale[kK / 16], V::ToFloat(full));
    });
  }

  static void Group6K(const std::byte* column, const std::byte* scales, const std::byte* data,
                      const std::byte* high, int group, int lane, float* out) {
    const F d = Half(column, lane);
    F scale[2];
    for (int i = 0; i < 2; ++i) {
      const I byte = V::ShiftLeftBy(ByteOf(scales, 2 * group + i, lane), 24);
      scale[i] = V::Mul(d, V::ToFloat(V::template ShiftRightSigned<24>(byte)));
    }
    const I pairs[2] = {Word(high, 0, lane), Word(high, 1, lane)};
    Codes4(data, lane, out, [&](auto k, I low) {
      constexpr int kK = decltype(k)::value;
      const I code = V::Or(V::And(low, 0x0f), Pair<kK, 4>(pairs[kK / 16]));
      return V::Mul(scale[kK / 16], V::ToFloat(V::AddInt(code, -32)));
    });
  }

  static void GroupIQ4XS(const std::byte* column, const std::byte* scales, const std::byte* data,
                         int group, int lane, float* out) {
    const I high = V::LoadUint16(scales + 2 * lane);
    const I low = Word(scales + 2 * kPanelRows, 0, lane);
    const I code = V::Or(V::And(V::ShiftRightBy(low, 4 * group), 0x0f),
                         V::template ShiftLeft<4>(V::And(V::ShiftRightBy(high, 2 * group), 3)));
    const F scale = V::Mul(Half(column, lane), V::ToFloat(V::AddInt(code, -32)));
    Codes4(data, lane, out,
           [&](auto, I word) { return V::Mul(scale, V::Lookup(word, kIQ4Table)); });
  }

  static void GroupMXFP4(const std::byte* column, const std::byte* data, int lane, float* out) {
    // 2^(e - 128), f32 denormals for the two smallest.
    uint32_t bits[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      const auto e = static_cast<uint32_t>(column[lane + i]);
      bits[i] = e < 2 ? 0x00200000u << e : (e - 1) << 23;
    }
    const F d = V::AsFloat(V::LoadInt(bits));
    Codes4(data, lane, out, [&](auto, I code) { return V::Mul(d, V::Lookup(code, kMXFP4Table)); });
  }
};

}  // namespace tokamak::cpu
