// Linear on bf16 activations with AMX: one tile instruction multiplies up to 16 tokens with a
// panel's 16 rows, 32 elements at a time. In memory, 16 consecutive pairs of those rows are a tile.
// Four products are in progress at a time: two tiles of tokens times two panels, or one times four.
//
// Bound: per 16 × 16 outputs and 32 elements, one tile product (16 cycles) and one tile load (8
// cycles).
#pragma once

#include "ops/cpu/amx/tiles.h"
#include "ops/cpu/avx512/simd.h"
#include "ops/cpu/kernels/bf16_linear.h"

namespace tokamak::cpu {
namespace {  // NOLINT(google-build-namespaces): one copy per ISA, for its file alone

// T is Tiles or an emulation of it.
template <class T>
class AmxBf16Multiply {
 public:
  using V = Avx512;
  static constexpr int kMaxTokens = 32;
  static constexpr bool kReadsWholeBlocks = false;

  // Tiles 0 to 3 hold sums, the next ones tokens, then panels. A tile has as many rows as tokens.
  static void Start(int num_tokens) {
    const int first = num_tokens < kRows ? num_tokens : kRows;
    const int second = num_tokens - first;
    TileConfig config;
    for (int tile = 0; tile < 8; ++tile) config.Set(tile, kRows, kRowBytes);
    if (second == 0) {
      for (const int tile : {0, 1, 2, 3, 4}) config.Set(tile, first, kRowBytes);
    } else {
      for (const int tile : {2, 3, 5}) config.Set(tile, second, kRowBytes);
    }
    T::Configure(config);
  }
  static void Finish() { T::Release(); }

  template <typename Body>
  static void ForBlockOf(int n, Body body) {
    if (n <= kRows) return body(Constant<kRows>());
    return body(Constant<2 * kRows>());
  }

  template <int kTokens>
  static void Run(const Bf16Piece& piece, float* sums) {
    constexpr int kHeight = kTokens / kRows;
    constexpr int kWidth = 4 / kHeight;
    int p = 0;
    for (; p + kWidth <= piece.num_panels; p += kWidth) Panels<kHeight, kWidth>(piece, p, sums);
    for (; p < piece.num_panels; ++p) Panels<kHeight, 1>(piece, p, sums);
  }

 private:
  static constexpr int kRows = 16;
  static constexpr int kRowBytes = 64;
  static constexpr int kTileBytes = kRows * kRowBytes;  // also the size of the 16 pairs of a panel

  // Adds the products of panels [p, p + kWidth) to their sums [token][16].
  template <int kHeight, int kWidth>
  static void Panels(const Bf16Piece& piece, int p, float* sums) {
    sums += p * kHeight * kRows * kPanelRows;
    const std::byte* panel = piece.panels + p * piece.panel_bytes;
    const std::byte* token = piece.tokens;
    ForSums<kHeight, kWidth>([&](auto tile, int offset) {
      T::template Load<decltype(tile)::value>(sums + offset, kRowBytes);
    });
    for (int i = 0; i < piece.pairs / kRows; ++i, panel += kTileBytes, token += kRowBytes) {
      Products<kHeight, kWidth>(panel, piece.panel_bytes, token);
      // Prefetches as Bf16Multiply does, if there are many tokens.
      if constexpr (kHeight == 2) {
        for (int v = kWidth; v < 2 * kWidth; ++v) {
          Prefetch(panel + v * piece.panel_bytes, kTileBytes);
        }
      }
    }
    if (const int rest = piece.pairs % kRows; rest > 0) {
      alignas(64) std::byte last[kWidth * kTileBytes] = {};
      for (int v = 0; v < kWidth; ++v) {
        __builtin_memcpy(last + v * kTileBytes, panel + v * piece.panel_bytes,
                         static_cast<size_t>(rest) * kRowBytes);
      }
      Products<kHeight, kWidth>(last, kTileBytes, token);
    }
    ForSums<kHeight, kWidth>([&](auto tile, int offset) {
      T::template Store<decltype(tile)::value>(sums + offset, kRowBytes);
    });
  }

  // Calls body(Constant<tile>(), offset among the sums) for each tile of sums.
  template <int kHeight, int kWidth, typename Body>
  [[gnu::always_inline]] static inline void ForSums(Body body) {
    Unroll<kHeight>([&](auto a) {
      Unroll<kWidth>([&](auto v) {
        constexpr int kA = decltype(a)::value, kV = decltype(v)::value;
        body(Constant<2 * kA + kV>(), (kV * kHeight + kA) * kRows * kPanelRows);
      });
    });
  }

  template <int kHeight, int kWidth>
  [[gnu::always_inline]] static inline void Products(const std::byte* panel, int64_t panel_bytes,
                                                     const std::byte* token) {
    constexpr int kTokens = 4;                  // the first tile of tokens
    constexpr int kPanels = kTokens + kHeight;  // the first tile of panels
    Unroll<kHeight>([&](auto a) {
      constexpr int kA = decltype(a)::value;
      constexpr int kStride = Bf16StrideOf(kHeight * kRows);
      T::template Load<kTokens + kA>(token + kA * kRows * kStride, kStride);
    });
    Unroll<kWidth>([&](auto v) {
      constexpr int kV = decltype(v)::value;
      constexpr int kB = kPanels + kV % (8 - kPanels);
      T::template Load<kB>(panel + kV * panel_bytes, kRowBytes);
      Unroll<kHeight>([&](auto a) {
        constexpr int kA = decltype(a)::value;
        T::template AddDotsBf16<2 * kA + kV, kTokens + kA, kB>();
      });
    });
  }
};

template <class T>
constexpr Bf16Kernels MakeAmxBf16Kernels() {
  return {.tokens_at_once = AmxBf16Multiply<T>::kMaxTokens,
          .linear = Bf16Linear<AmxBf16Multiply<T>>::Run};
}

}  // namespace
}  // namespace tokamak::cpu
