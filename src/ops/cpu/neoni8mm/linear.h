// Linear on int8 activations with smmla (FEAT_I8MM): one instruction multiplies two rows with two
// tokens over eight elements, twice the products of sdot. Zipping two words of four rows of a panel
// gives two registers of two rows and eight elements, each used for up to four pairs of tokens.
//
// Until a piece of k is done, sums stay in the order of smmla, [row 0 · token 0, row 0 · token 1,
// row 1 · token 0, row 1 · token 1], and scales are spread to it. A single token uses sdot, so
// nothing is computed for a missing partner. The arithmetic is that of cpu/int8_kernels.h.
//
// Bound: with 8 tokens, per group of 32, token and 4 rows: 4 smmla, 3 or 4 instructions on the
// sums, and an eighth of the unpacking.
#pragma once

#include "ops/cpu/kernels/int8_linear.h"
#include "ops/cpu/neondot/dot.h"

namespace tokamak::cpu {
namespace {  // NOLINT(google-build-namespaces): one copy per ISA, for its file alone

class I8mmLinear : Int8Linear<NeonDot> {
 public:
  // 32 registers: 8 integer sums, 8 floating-point sums, the rest for two words, their scales and
  // codes.
  static constexpr int kMaxTokens = 8;

  static void Run(const LinearTask& task) {
    ForBlockType(task.dtype, [&](auto type) { Typed<decltype(type)::value>(task); });
  }

 private:
  // The tokens' part of a piece of k, which stays in L1 beside a panel's part. Scales and sums lie
  // in smmla's order, a pair twice, so that a plain load reads them.
  template <int kPairs>
  struct Pairs {
    static constexpr int kPiece = 32;  // groups
    // [group][octet][pair][token][8]
    alignas(64) std::byte codes[kPiece * kPairs * 2 * kActivationBlock];
    float scales[kPiece * kPairs * 4];  // [group][pair][4]: d
    // [group][part][pair][4]: d · Σ q in f32, or -offset · Σ q in i32, as Extra returns it.
    uint32_t extra[kPiece * 2 * kPairs * 4];
  };

  template <DType kDType>
  static void Typed(LinearTask task) {
    while (task.num_tokens > 1) {
      const int64_t n = task.num_tokens < kMaxTokens ? task.num_tokens : kMaxTokens;
      if (n > 4) {
        Tile<kDType, 4>(task, n);
      } else if (n > 2) {
        Tile<kDType, 2>(task, n);
      } else {
        Tile<kDType, 1>(task, n);
      }
      task.num_tokens -= n;
      task.x += n * task.x_stride;
      task.out += n * task.out_stride;
    }
    if (task.num_tokens == 1) Int8Linear<NeonDot>::Run(task);
  }

  template <DType kDType, int kPairs>
  static void Tile(const LinearTask& task, int64_t count) {
    constexpr int kTokens = 2 * kPairs;
    alignas(64) float sums[kMaxInt8Panels * kTokens * kPanelRows] = {};
    Pairs<kPairs> tokens;
    constexpr int kPiece = Pairs<kPairs>::kPiece;
    const int64_t groups = task.cols / kActivationBlock;
    for (int64_t first = 0; first < groups; first += kPiece) {
      const int n = static_cast<int>(groups - first < kPiece ? groups - first : kPiece);
      Pack<kDType, kPairs>(task, count, first, n, &tokens);
      for (int p = 0; p < task.num_panels; ++p) {
        float* out = sums + p * kTokens * kPanelRows;
        for (int lane = 0; lane < kPanelRows; lane += NeonDot::kLanes) {
          Multiply<kDType, kPairs>(task.panels + p * task.panel_bytes, first, n, tokens, lane,
                                   out + lane);
        }
      }
    }
    StoreSums<NeonDot>(task, count, kTokens, sums);
  }

  // Tokens beyond `count` repeat the last one; their results are not stored.
  template <DType kDType, int kPairs>
  static void Pack(const LinearTask& task, int64_t count, int64_t first, int n,
                   Pairs<kPairs>* tokens) {
    constexpr int kTokens = 2 * kPairs;
    constexpr int kParts = PartsOfGroup(kDType);
    constexpr int kOctet = 8, kWide = 4 * kPairs;
    for (int t = 0; t < kTokens; ++t) {
      const std::byte* row = task.x + (t < count ? t : count - 1) * task.x_stride;
      const std::byte* from = row + first * kActivationBlock;
      std::byte* to = tokens->codes + t * kOctet;
      for (int i = 0; i < n * kActivationBlock / kOctet; ++i) {
        __builtin_memcpy(to, from, kOctet);
        from += kOctet;
        to += kTokens * kOctet;
      }
      const auto* scales =
          reinterpret_cast<const float*>(row + ActivationScales(task.cols)) + first;
      const auto* low =
          reinterpret_cast<const int16_t*>(row + ActivationLowSums(task.cols)) + first;
      const auto* high =
          reinterpret_cast<const int16_t*>(row + ActivationHighSums(task.cols)) + first;
      for (int g = 0; g < n; ++g) {
        for (int twice = 0; twice < 2; ++twice) {
          const int at = t / 2 * 4 + 2 * twice + t % 2;
          tokens->scales[g * kWide + at] = scales[g];
          uint32_t* extra = tokens->extra + g * kParts * kWide + at;
          if constexpr (kParts == 1) {
            extra[0] = Extra<kDType>(low[g] + high[g], scales[g]);
          } else {
            extra[0] = Extra<kDType>(low[g], scales[g]);
            extra[kWide] = Extra<kDType>(high[g], scales[g]);
          }
        }
      }
    }
  }

  // Adds groups [first, first + n) of four rows from `lane` on to sums [token][16].
  template <DType kDType, int kPairs>
  static void Multiply(const std::byte* panel, int64_t first, int n, const Pairs<kPairs>& tokens,
                       int lane, float* sums) {
    constexpr PanelLayout kLayout = LayoutOf(kDType);
    constexpr int kGroups = kLayout.elements / kActivationBlock;
    constexpr int kTokens = 2 * kPairs;
    F sum[kPairs][2];  // rows 0 and 1, rows 2 and 3
    for (int p = 0; p < kPairs; ++p) {
      const F a = NeonDot::Load(sums + 2 * p * kPanelRows);
      const F b = NeonDot::Load(sums + (2 * p + 1) * kPanelRows);
      sum[p][0] = vzip1q_f32(a, b);
      sum[p][1] = vzip2q_f32(a, b);
    }
    for (int g = 0; g < n; ++g) {
      const int64_t index = first + g;
      const std::byte* column = panel + index / kGroups * kLayout.bytes;
      Group<kDType, kPairs>(column, static_cast<int>(index % kGroups),
                            tokens.codes + g * kTokens * kActivationBlock,
                            tokens.scales + g * 4 * kPairs,
                            tokens.extra + g * PartsOfGroup(kDType) * 4 * kPairs, lane, sum);
    }
    for (int p = 0; p < kPairs; ++p) {
      NeonDot::Store(sums + 2 * p * kPanelRows, vuzp1q_f32(sum[p][0], sum[p][1]));
      NeonDot::Store(sums + (2 * p + 1) * kPanelRows, vuzp2q_f32(sum[p][0], sum[p][1]));
    }
  }

  template <DType kDType, int kPairs>
  [[gnu::always_inline]] static inline void Group(const std::byte* column, int group,
                                                  const std::byte* codes, const float* scales,
                                                  const uint32_t* extra, int lane,
                                                  F (&sum)[kPairs][2]) {
    using Codes = CodesOf<NeonDot, kDType>;
    constexpr PanelLayout kLayout = LayoutOf(kDType);
    constexpr int kParts = PartsOfGroup(kDType);
    constexpr int kWords = 8 / kParts;
    const std::byte* data = column + kLayout.groups + group * kLayout.group_bytes;
    const auto weight = GroupScales<NeonDot, kDType>::Load(column, group, lane);
    Unroll<kParts>([&](auto part) {
      constexpr int kPart = decltype(part)::value;
      const uint32_t* part_extra = extra + kPart * 4 * kPairs;
      I dot[kPairs][2];
#pragma GCC unroll 4
      for (int p = 0; p < kPairs; ++p) {
        dot[p][0] = dot[p][1] = !HasMin(kDType) && Codes::Offset() != 0
                                    ? NeonDot::LoadInt(part_extra + 4 * p)
                                    : NeonDot::ZeroInt();
      }
      Unroll<kWords / 2>([&](auto octet) {
        constexpr int kWord = kPart * kWords + 2 * decltype(octet)::value;
        const I a = Codes::template Word<kWord>(data, lane);
        const I b = Codes::template Word<kWord + 1>(data, lane);
        const int8x16_t rows01 = vreinterpretq_s8_s32(vzip1q_s32(a, b));
        const int8x16_t rows23 = vreinterpretq_s8_s32(vzip2q_s32(a, b));
#pragma GCC unroll 4
        for (int p = 0; p < kPairs; ++p) {
          const std::byte* pair = codes + (kWord / 2 * kPairs + p) * 16;
          const int8x16_t x = vld1q_s8(reinterpret_cast<const int8_t*>(pair));
          dot[p][0] = vmmlaq_s32(dot[p][0], rows01, x);
          dot[p][1] = vmmlaq_s32(dot[p][1], rows23, x);
        }
      });
      AddScaled<kDType, kPairs>(weight.scale[kPart], weight.min[kPart], dot, scales, part_extra,
                                sum);
    });
  }

  template <DType kDType, int kPairs>
  [[gnu::always_inline]] static inline void AddScaled(F scale, F min, const I (&dot)[kPairs][2],
                                                      const float* scales, const uint32_t* extra,
                                                      F (&sum)[kPairs][2]) {
    const F scale2[2] = {vzip1q_f32(scale, scale), vzip2q_f32(scale, scale)};
#pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p) {
      const F d = NeonDot::Load(scales + 4 * p);
      for (int i = 0; i < 2; ++i) {
        const F product = NeonDot::Mul(NeonDot::ToFloat(dot[p][i]), scale2[i]);
        sum[p][i] = NeonDot::Fma(product, d, sum[p][i]);
      }
      if constexpr (HasMin(kDType)) {
        const F x = NeonDot::AsFloat(NeonDot::LoadInt(extra + 4 * p));
        sum[p][0] = NeonDot::Fma(vzip1q_f32(min, min), x, sum[p][0]);
        sum[p][1] = NeonDot::Fma(vzip2q_f32(min, min), x, sum[p][1]);
      }
    }
  }
};

}  // namespace
}  // namespace tokamak::cpu
