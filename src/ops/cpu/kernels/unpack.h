// Unpacks panels (cpu/panel_layout.h) of every weight type to f32 tiles [k][16]. A lane is a row,
// so that scales are vectors and a code takes one shift and one mask. Values are bit for bit
// DequantizeRow's: where something is added to a product of code and scale, the product is exact in
// f32, so a fused multiply-add rounds once, too.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/kernels/code_book.h"
#include "ops/cpu/kernels/constant.h"
#include "ops/cpu/kernels/group_scales.h"
#include "ops/cpu/panel_layout.h"

namespace tokamak::cpu {

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
        return Pairs(panel, k_begin, k_count, tile);
      default:
        return ForBlockType(dtype, [&](auto type) {
          Blocks<decltype(type)::value>(panel, k_begin, k_count, tile);
        });
    }
  }

 private:
  alignas(64) static constexpr auto kIQ4Table = CodeBook<float>(kIQ4Values, 0);
  alignas(64) static constexpr auto kMXFP4Table = CodeBook<float>(kMXFP4Values, 0);

  template <int kBytes, typename Read>
  static void Plain(const std::byte* panel, int64_t k_begin, int64_t k_count, float* tile,
                    Read read) {
    panel += k_begin * kPanelRows * kBytes;
    for (int64_t i = 0; i < k_count * kPanelRows; i += kLanes) {
      V::Store(tile + i, read(panel + i * kBytes));
    }
  }

  // BF16: its bits are the upper half of f32's.
  static void Pairs(const std::byte* panel, int64_t k_begin, int64_t k_count, float* tile) {
    panel += k_begin * kPanelRows * 2;
    for (int64_t k = 0; k < k_count; k += 2, tile += 2 * kPanelRows, panel += 4 * kPanelRows) {
      for (int lane = 0; lane < kPanelRows; lane += kLanes) {
        const I pair = Word(panel, 0, lane);
        V::Store(tile + lane, V::AsFloat(V::template ShiftLeft<16>(pair)));
        if (k + 1 == k_count) continue;
        constexpr int kHigh = static_cast<int>(0xffff0000u);
        V::Store(tile + kPanelRows + lane, V::AsFloat(V::And(pair, kHigh)));
      }
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

  // Moves bits from kFrom to kTo in each word. kMask selects them at the destination.
  template <int kFrom, int kTo, int kMask>
  static I Bits(I word) {
    if constexpr (kFrom >= kTo) {
      return V::And(V::template ShiftRight<kFrom - kTo>(word), kMask);
    } else {
      return V::And(V::template ShiftLeft<kTo - kFrom>(word), kMask);
    }
  }

  // Calls make(Constant<k>(), word) for the 32 elements of a group and stores the results. `word`
  // is a word of codes4 shifted so that the code is its low four bits, with others above.
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

  // The same for codes2, whose bits are moved to kTo: make(Constant<k>(), bits).
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

  // Unpacks 32 elements of kLanes rows.
  template <DType kDType>
  static void Group(const std::byte* column, int group, int lane, float* out) {
    constexpr PanelLayout kLayout = LayoutOf(kDType);
    const std::byte* data = column + kLayout.groups + group * kLayout.group_bytes;
    const auto s = GroupScales<V, kDType>::Load(column, group, lane);
    if constexpr (kDType == DType::kQ4_0) {
      Codes4(data, lane, out,
             [&](auto, I code) { return V::Mul(s.scale[0], V::template Nibble<-8>(code)); });
    } else if constexpr (kDType == DType::kQ4_1 || kDType == DType::kQ4_K) {
      Codes4(data, lane, out, [&](auto, I code) {
        return V::Fma(s.scale[0], V::template Nibble<0>(code), s.min[0]);
      });
    } else if constexpr (kDType == DType::kQ5_0) {
      const I bits = Word(data + kLayout.bits, 0, lane);
      Codes4(data, lane, out, [&](auto k, I code) {
        const I code5 = Code5<decltype(k)::value>(code, bits);
        return V::Mul(s.scale[0], V::ToFloat(V::AddInt(code5, -16)));
      });
    } else if constexpr (kDType == DType::kQ5_1 || kDType == DType::kQ5_K) {
      const I bits = Word(data + kLayout.bits, 0, lane);
      Codes4(data, lane, out, [&](auto k, I code) {
        return V::Fma(s.scale[0], V::ToFloat(Code5<decltype(k)::value>(code, bits)), s.min[0]);
      });
    } else if constexpr (kDType == DType::kQ8_0) {
      Group8(s.scale[0], data, lane, out);
    } else if constexpr (kDType == DType::kQ2_K) {
      Codes2<0>(data, lane, out, [&](auto k, I code) {
        constexpr int kHalf = decltype(k)::value / 16;
        return V::Fma(s.scale[kHalf], V::ToFloat(code), s.min[kHalf]);
      });
    } else if constexpr (kDType == DType::kQ3_K) {
      const I bits = Word(data + kLayout.bits, 0, lane);
      Codes2<0>(data, lane, out, [&](auto k, I code) {
        constexpr int kK = decltype(k)::value;
        const I full = V::AddInt(V::Or(code, Bits<BitOfElement(kK), 2, 4>(bits)), -4);
        return V::Mul(s.scale[kK / 16], V::ToFloat(full));
      });
    } else if constexpr (kDType == DType::kQ6_K) {
      const std::byte* high = data + kLayout.codes2;
      const I pairs[2] = {Word(high, 0, lane), Word(high, 1, lane)};
      Codes4(data, lane, out, [&](auto k, I low) {
        constexpr int kK = decltype(k)::value;
        const I code = V::Or(V::And(low, 0x0f), Pair<kK, 4>(pairs[kK / 16]));
        return V::Mul(s.scale[kK / 16], V::ToFloat(V::AddInt(code, -32)));
      });
    } else {
      const float* table = kDType == DType::kMXFP4 ? kMXFP4Table.values : kIQ4Table.values;
      Codes4(data, lane, out,
             [&](auto, I code) { return V::Mul(s.scale[0], V::Lookup(code, table)); });
    }
  }

  // The five-bit code of element k.
  template <int kK>
  static I Code5(I low, I bits) {
    return V::Or(V::And(low, 0x0f), Bits<BitOfElement(kK), 4, 0x10>(bits));
  }

  static void Group8(F scale, const std::byte* data, int lane, float* out) {
    Unroll<8>([&](auto j) {
      const I word = Word(data, decltype(j)::value, lane);
      Unroll<4>([&](auto b) {
        constexpr int kByte = decltype(b)::value;
        constexpr int kK = 4 * decltype(j)::value + kByte;
        const I code =
            V::template ShiftRightSigned<24>(V::template ShiftLeft<24 - 8 * kByte>(word));
        V::Store(out + kK * kPanelRows, V::Mul(V::ToFloat(code), scale));
      });
    });
  }
};

}  // namespace tokamak::cpu
