// One work item of Linear on int8 activations. A block of up to kMaxTokens tokens is packed by
// pieces of k, so that operands lie at fixed distances; each panel is then read once for all of
// them. Lanes are output rows: a word of a panel holds four weights of 16 rows, which one
// instruction multiplies with four broadcast codes of a token.
//
// Bound: with few tokens, panel_bytes per panel; with many, cols / 4 dot products of 16 lanes per
// token and panel, and per group of 32 about 4 more instructions on its sums.
#pragma once

#include "ops/cpu/int8_kernels.h"
#include "ops/cpu/kernels/codes.h"
#include "ops/cpu/kernels/constant.h"
#include "ops/cpu/kernels/group_scales.h"
#include "ops/cpu/kernels/prefetch.h"
#include "ops/cpu/kernels/store_sums.h"
#include "quant/activation_row.h"

namespace tokamak::cpu {

template <class D>
class Int8Linear {
 public:
  static void Run(const LinearTask& task) {
    ForBlockType(task.dtype, [&](auto type) { Typed<decltype(type)::value>(task); });
  }

 protected:
  using F = typename D::F;
  using I = typename D::I;
  static constexpr int kVectors = kPanelRows / D::kLanes;
  // Groups of 32 in a piece of k. The tokens' codes of a piece stay in L1 beside a panel's part.
  static constexpr int PieceOf(int tokens) { return tokens > 8 ? 32 : tokens > 1 ? 64 : 256; }

  // The part of kTokens tokens in a piece. A single token's codes and scales are not copied.
  template <int kTokens>
  struct Tokens {
    static constexpr int kPiece = PieceOf(kTokens);
    const std::byte* codes;  // [token][kPiece][32]
    const float* scales;     // [token][kPiece]: d
    // For each part of a group, [part][token][kPiece]: d · Σ q in f32, or -offset · Σ q in i32.
    alignas(64) uint32_t extra[2 * kTokens * kPiece];
    alignas(64) std::byte packed_codes[kTokens > 1 ? kTokens* kPiece* kActivationBlock : 1];
    alignas(64) float packed_scales[kTokens > 1 ? kTokens* kPiece : 1];
  };

  template <DType kDType>
  static void Typed(LinearTask task) {
    while (task.num_tokens > 0) {
      const int64_t done = Block<kDType>(task);
      task.num_tokens -= done;
      task.x += done * task.x_stride;
      task.out += done * task.out_stride;
    }
  }

  // Multiplies a full register block of tokens, or the last ones with the next larger block.
  template <DType kDType>
  static int64_t Block(const LinearTask& task) {
    const int64_t n = task.num_tokens;
    if (n == 1) return Tile<kDType, 1>(task, 1);
    if (n == 2) return Tile<kDType, 2>(task, 2);
    if constexpr (D::kMaxTokens >= 12) {
      if (n > 8) return Tile<kDType, 12>(task, n < 12 ? n : 12);
    }
    if constexpr (D::kMaxTokens >= 8) {
      if (n > 4) return Tile<kDType, 8>(task, n < 8 ? n : 8);
    }
    return Tile<kDType, 4>(task, n < 4 ? n : 4);
  }

  template <DType kDType, int kTokens>
  static int64_t Tile(const LinearTask& task, int64_t count) {
    alignas(64) float sums[kMaxInt8Panels * kTokens * kPanelRows];  // of all pieces except the last
    Tokens<kTokens> tokens;
    constexpr int kPiece = PieceOf(kTokens);
    const int64_t groups = task.cols / kActivationBlock;
    for (int64_t first = 0; first < groups; first += kPiece) {
      const int n = static_cast<int>(groups - first < kPiece ? groups - first : kPiece);
      Pack<kDType, kTokens>(task, count, first, n, &tokens);
      for (int p = 0; p < task.num_panels; ++p) {
        constexpr int kWidth = kTokens == 1 ? kVectors : 1;
        for (int lane = 0; lane < kPanelRows; lane += kWidth * D::kLanes) {
          Multiply<kDType, kTokens, kWidth>(task, count, p, first, n, tokens, lane,
                                            sums + p * kTokens * kPanelRows + lane);
        }
      }
    }
    return count;
  }

  // Tokens beyond `count` repeat the last one; their results are not stored.
  template <DType kDType, int kTokens>
  static void Pack(const LinearTask& task, int64_t count, int64_t first, int n,
                   Tokens<kTokens>* tokens) {
    constexpr int kPiece = PieceOf(kTokens);
    for (int t = 0; t < kTokens; ++t) {
      const std::byte* row = task.x + (t < count ? t : count - 1) * task.x_stride;
      const std::byte* codes = row + first * kActivationBlock;
      const auto* scales =
          reinterpret_cast<const float*>(row + ActivationScales(task.cols)) + first;
      if constexpr (kTokens == 1) {
        tokens->codes = codes;
        tokens->scales = scales;
      } else {
        __builtin_memcpy(tokens->packed_codes + t * kPiece * kActivationBlock, codes,
                         static_cast<size_t>(n) * kActivationBlock);
        for (int g = 0; g < n; ++g) tokens->packed_scales[t * kPiece + g] = scales[g];
        tokens->codes = tokens->packed_codes;
        tokens->scales = tokens->packed_scales;
      }
      const auto* low =
          reinterpret_cast<const int16_t*>(row + ActivationLowSums(task.cols)) + first;
      const auto* high =
          reinterpret_cast<const int16_t*>(row + ActivationHighSums(task.cols)) + first;
      uint32_t* extra = tokens->extra + t * kPiece;
      if constexpr (PartsOfGroup(kDType) == 1) {
        for (int g = 0; g < n; ++g) extra[g] = Extra<kDType>(low[g] + high[g], scales[g]);
      } else {
        uint32_t* second = extra + kTokens * kPiece;
        for (int g = 0; g < n; ++g) extra[g] = Extra<kDType>(low[g], scales[g]);
        for (int g = 0; g < n; ++g) second[g] = Extra<kDType>(high[g], scales[g]);
      }
    }
  }

  template <DType kDType>
  static uint32_t Extra(int sum, float scale) {
    if constexpr (HasMin(kDType)) {
      return __builtin_bit_cast(uint32_t, scale * static_cast<float>(sum));
    } else {
      return static_cast<uint32_t>(-CodesOf<D, kDType>::Offset() * sum);
    }
  }

  // Multiplies groups [first, first + n) of kWidth vectors of panel p from `lane` on. Between
  // pieces of k the results are in sums [token][16]; after the last piece they go to the outputs.
  template <DType kDType, int kTokens, int kWidth>
  static void Multiply(const LinearTask& task, int64_t count, int p, int64_t first, int n,
                       const Tokens<kTokens>& tokens, int lane, float* sums) {
    constexpr PanelLayout kLayout = LayoutOf(kDType);
    constexpr int kGroups = kLayout.elements / kActivationBlock;
    const std::byte* panel = task.panels + p * task.panel_bytes;
    F sum[kTokens][kWidth];
    if (first == 0) {
      for (int t = 0; t < kTokens; ++t) {
        for (int v = 0; v < kWidth; ++v) sum[t][v] = D::Zero();
      }
    } else {
      for (int t = 0; t < kTokens; ++t) {
        for (int v = 0; v < kWidth; ++v) sum[t][v] = D::Load(sums + t * kPanelRows + v * D::kLanes);
      }
    }
    const std::byte* codes = tokens.codes;
    for (int g = 0; g < n; ++g, codes += kActivationBlock) {
      const int64_t index = first + g;
      const std::byte* column = panel + index / kGroups * kLayout.bytes;
      // The work on a group keeps the hardware prefetcher from running far enough ahead. With few
      // tokens, fetch what comes soon; with more, the same part of the next panel, which may be the
      // next item's or none.
      if (lane == 0) {
        constexpr int kBytes = kLayout.bytes / kGroups;
        constexpr int64_t kSoon = 4096;
        Prefetch(column + index % kGroups * kBytes + (kTokens < 4 ? kSoon : task.panel_bytes),
                 kBytes);
      }
      Group<kDType, kTokens, kWidth>(column, static_cast<int>(index % kGroups), codes,
                                     tokens.scales + g, tokens.extra + g, lane, sum);
    }
    if (first + n < task.cols / kActivationBlock) {
      for (int t = 0; t < kTokens; ++t) {
        for (int v = 0; v < kWidth; ++v) D::Store(sums + t * kPanelRows + v * D::kLanes, sum[t][v]);
      }
    } else {
      const int64_t output = p * kPanelRows + lane;
#pragma GCC unroll 12
      for (int t = 0; t < kTokens; ++t) {
        if (t == count) break;
        for (int v = 0; v < kWidth; ++v) StoreLanes<D>(task, t, output + v * D::kLanes, sum[t][v]);
      }
    }
  }

  template <DType kDType, int kTokens, int kWidth>
  [[gnu::always_inline]] static inline void Group(const std::byte* column, int group,
                                                  const std::byte* codes, const float* scales,
                                                  const uint32_t* extra, int lane,
                                                  F (&sum)[kTokens][kWidth]) {
    using Codes = CodesOf<D, kDType>;
    constexpr PanelLayout kLayout = LayoutOf(kDType);
    constexpr int kPiece = PieceOf(kTokens);
    constexpr int kParts = PartsOfGroup(kDType);
    constexpr int kWords = 8 / kParts;
    const std::byte* data = column + kLayout.groups + group * kLayout.group_bytes;
    GroupScales<D, kDType> weight[kWidth];
    for (int v = 0; v < kWidth; ++v) {
      weight[v] = GroupScales<D, kDType>::Load(column, group, lane + v * D::kLanes);
    }
    Unroll<kParts>([&](auto part) {
      constexpr int kPart = decltype(part)::value;
      const uint32_t* part_extra = extra + kPart * kTokens * kPiece;
      typename D::Sum dot[kTokens][kWidth];
#pragma GCC unroll 12
      for (int t = 0; t < kTokens; ++t) {
        const I start = !HasMin(kDType) && Codes::Offset() != 0
                            ? D::BroadcastInt(part_extra + t * kPiece)
                            : D::ZeroInt();
        for (int v = 0; v < kWidth; ++v) dot[t][v] = D::Start(start);
      }
      Unroll<kWords>([&](auto word) {
        constexpr int kJ = decltype(word)::value;
        constexpr int kWord = kPart * kWords + kJ;
#pragma GCC unroll 4
        for (int v = 0; v < kWidth; ++v) {
          const I w = Codes::template Word<kWord>(data, lane + v * D::kLanes);
#pragma GCC unroll 12
          for (int t = 0; t < kTokens; ++t) {
            D::template AddDot<Codes::Top(), Codes::kSigned, kJ, kWords>(
                dot[t][v], w, codes + t * kPiece * kActivationBlock + 4 * kWord);
          }
        }
      });
#pragma GCC unroll 12
      for (int t = 0; t < kTokens; ++t) {
        const F d = D::Broadcast(scales[t * kPiece]);
        for (int v = 0; v < kWidth; ++v) {
          const F product = D::Mul(D::ToFloat(D::Total(dot[t][v])), weight[v].scale[kPart]);
          sum[t][v] = D::Fma(product, d, sum[t][v]);
          if constexpr (HasMin(kDType)) {
            const F x = D::Broadcast(__builtin_bit_cast(float, part_extra[t * kPiece]));
            sum[t][v] = D::Fma(weight[v].min[kPart], x, sum[t][v]);
          }
        }
      }
    });
  }
};

}  // namespace tokamak::cpu
