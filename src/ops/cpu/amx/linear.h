// Linear on int8 activations with AMX: 16 tokens times the 16 rows of a panel, a group of 32
// elements at a time, in one instruction on tiles. Fewer tokens than that take AVX512-VNNI's way,
// which gives the same bits: the integer sums are exact and what follows them is the same recipe
// (cpu/int8_kernels.h).
//
// Bound: per 16 × 16 outputs and group one tile product (16 cycles) and 16 times the scaling of a
// vector of sums (4 or 5 instructions): the latter.
#pragma once

#include "ops/cpu/avx512vnni/dot.h"
#include "ops/cpu/kernels/int8_linear.h"

namespace tokamak::cpu {
namespace {  // NOLINT(google-build-namespaces): one copy per ISA, for its file alone

// Tile products take signed codes as well as unsigned ones.
struct AmxCodes : Avx512Vnni {
  static constexpr bool kSigned = true;
};

class AmxLinear : Int8Linear<AmxCodes> {
 public:
  static void Run(const LinearTask& given) {
    LinearTask task = given;
    if (task.num_tokens >= kTokens) {
      ForBlockType(task.dtype, [&](auto type) {
        constexpr DType kDType = decltype(type)::value;
        Configure(PartsOfGroup(kDType));
        for (; task.num_tokens >= kTokens; task.num_tokens -= kTokens) {
          Tile16<kDType>(task);
          task.x += kTokens * task.x_stride;
          task.out += kTokens * task.out_stride;
        }
        _tile_release();
      });
    }
    if (task.num_tokens > 0) Int8Linear<Avx512Vnni>::Run(task);
  }

 private:
  static constexpr int kTokens = 16;
  static constexpr int kPiece = PieceOf(kTokens);

  // Tile 0: the tokens' codes; 1: the panel's; 2 and 3: sums.
  static void Configure(int parts) {
    struct alignas(64) {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    const int words = 8 / parts;
    config.rows[0] = kTokens;
    config.row_bytes[0] = static_cast<uint16_t>(4 * words);
    config.rows[1] = static_cast<uint8_t>(words);
    config.row_bytes[1] = 64;
    for (int tile = 2; tile < 4; ++tile) {
      config.rows[tile] = kTokens;
      config.row_bytes[tile] = 64;
    }
    _tile_loadconfig(&config);
  }

  template <DType kDType>
  static void Tile16(const LinearTask& task) {
    alignas(64) float sums[kMaxInt8Panels * kTokens * kPanelRows] = {};
    Tokens<kTokens> tokens;
    const int64_t groups = task.cols / kActivationBlock;
    for (int64_t first = 0; first < groups; first += kPiece) {
      const int n = static_cast<int>(groups - first < kPiece ? groups - first : kPiece);
      Pack<kDType, kTokens>(task, kTokens, first, n, &tokens);
      for (int p = 0; p < task.num_panels; ++p) {
        MultiplyPanel<kDType>(task.panels + p * task.panel_bytes, first, n, tokens,
                              sums + p * kTokens * kPanelRows);
      }
    }
    StoreSums<Avx512>(task, kTokens, kTokens, sums);
  }

  template <DType kDType>
  static void MultiplyPanel(const std::byte* panel, int64_t first, int n,
                            const Tokens<kTokens>& tokens, float* sums) {
    using Codes = CodesOf<AmxCodes, kDType>;
    constexpr PanelLayout kLayout = LayoutOf(kDType);
    constexpr int kGroups = kLayout.elements / kActivationBlock;
    constexpr int kParts = PartsOfGroup(kDType);
    constexpr int kWords = 8 / kParts;
    // Two of each, so that a product need not wait for what is done with the one before.
    alignas(64) std::byte words[2][8 * 64];
    alignas(64) int32_t dots[2][kTokens * kPanelRows];
    F sum[kTokens];
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) sum[t] = Avx512::Load(sums + t * kPanelRows);
    for (int g = 0; g < n; ++g) {
      const int64_t index = first + g;
      const std::byte* column = panel + index / kGroups * kLayout.bytes;
      const int group = static_cast<int>(index % kGroups);
      const std::byte* data = column + kLayout.groups + group * kLayout.group_bytes;
      const auto weight = GroupScales<Avx512, kDType>::Load(column, group, 0);
      Unroll<kParts>([&](auto part) {
        constexpr int kPart = decltype(part)::value;
        std::byte* const b = words[(g + kPart) % 2];
        int32_t* const dot = dots[(g + kPart) % 2];
        Unroll<kWords>([&](auto word) {
          constexpr int kJ = decltype(word)::value;
          _mm512_store_si512(b + 64 * kJ, Codes::template Word<kPart * kWords + kJ>(data, 0));
        });
        const std::byte* a = tokens.codes + g * kTokens * kActivationBlock + kPart * 4 * kWords;
        if ((g + kPart) % 2 == 0) {
          Product<Codes::kSigned, 2>(a, b, dot);
        } else {
          Product<Codes::kSigned, 3>(a, b, dot);
        }
        AddScaled<kDType>(weight.scale[kPart], weight.min[kPart], dot, tokens.scales + g,
                          tokens.extra + g + kPart * kTokens * kPiece, sum);
      });
    }
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) Avx512::Store(sums + t * kPanelRows, sum[t]);
  }

  template <bool kIsSigned, int kTile>
  [[gnu::always_inline]] static inline void Product(const std::byte* a, const std::byte* b,
                                                    int32_t* dot) {
    _tile_loadd(1, b, 64);
    _tile_loadd(0, a, kActivationBlock);
    if constexpr (kTile == 2) {
      _tile_zero(2);
      if constexpr (kIsSigned) {
        _tile_dpbssd(2, 0, 1);
      } else {
        _tile_dpbsud(2, 0, 1);
      }
      _tile_stored(2, dot, 64);
    } else {
      _tile_zero(3);
      if constexpr (kIsSigned) {
        _tile_dpbssd(3, 0, 1);
      } else {
        _tile_dpbsud(3, 0, 1);
      }
      _tile_stored(3, dot, 64);
    }
  }

  // The steps after the integer sums, for all tokens.
  template <DType kDType>
  [[gnu::always_inline]] static inline void AddScaled(F scale, F min, const int32_t* dot,
                                                      const float* scales, const uint32_t* extra,
                                                      F (&sum)[kTokens]) {
    using Codes = CodesOf<AmxCodes, kDType>;
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
      I total = _mm512_load_si512(dot + t * kPanelRows);
      if constexpr (!HasMin(kDType) && Codes::Offset() != 0) {
        total = _mm512_add_epi32(total, Avx512Vnni::BroadcastInt(extra + t * kPiece));
      }
      const F product = Avx512::Mul(Avx512::ToFloat(total), scale);
      sum[t] = Avx512::Fma(product, Avx512::Broadcast(scales[t * kPiece]), sum[t]);
      if constexpr (HasMin(kDType)) {
        const float x = __builtin_bit_cast(float, extra[t * kPiece]);
        sum[t] = Avx512::Fma(min, Avx512::Broadcast(x), sum[t]);
      }
    }
  }
};

}  // namespace
}  // namespace tokamak::cpu
