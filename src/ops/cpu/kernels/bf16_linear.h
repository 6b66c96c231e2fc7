// One work item of Linear on bf16 activations. A block of tokens is packed by pieces of k, so that
// operands lie at fixed distances; each panel is then read once for all of them. M multiplies a
// piece: Bf16Multiply below with vectors, amx/bf16_linear.h with tiles.
//
// Bound: with few tokens, panel_bytes per panel; with many, cols / 2 dot products of 16 lanes per
// token and panel.
#pragma once

#include "ops/cpu/bf16_kernels.h"
#include "ops/cpu/kernels/constant.h"
#include "ops/cpu/kernels/prefetch.h"
#include "ops/cpu/kernels/store_sums.h"
#include "ops/cpu/panel_layout.h"

namespace tokamak::cpu {

// Elements of a row in a piece of k. The tokens of a piece stay in L1 beside a panel's part.
constexpr int Bf16PieceOf(int tokens) { return tokens > 8 ? 512 : tokens > 1 ? 1024 : 4096; }
// Bytes between packed tokens: a cache line more than a piece, so that they do not compete for the
// same lines of L1.
constexpr int Bf16StrideOf(int tokens) { return 2 * Bf16PieceOf(tokens) + 64; }

// A piece of k. Tokens are padded with zeros to a multiple of 32 elements.
struct Bf16Piece {
  const std::byte* panels;  // from the piece's first pair on
  int64_t panel_bytes;
  int num_panels;
  int pairs;                // in the panels
  const std::byte* tokens;  // [tokens][Bf16StrideOf(tokens)]
};

template <class M>
class Bf16Linear {
 public:
  static void Run(const LinearTask& given) {
    LinearTask task = given;
    while (task.num_tokens > 0) {
      const int64_t done = Block(task);
      task.num_tokens -= done;
      task.x += done * task.x_stride;
      task.out += done * task.out_stride;
    }
  }

 private:
  // Multiplies a full block of tokens. The last tokens use the smallest block that holds them.
  static int64_t Block(const LinearTask& task) {
    const auto count =
        static_cast<int>(task.num_tokens < M::kMaxTokens ? task.num_tokens : M::kMaxTokens);
    M::ForBlockOf(count, [&](auto tokens) { Tile<decltype(tokens)::value>(task, count); });
    return count;
  }

  template <int kTokens>
  static void Tile(const LinearTask& task, int count) {
    constexpr int kPiece = Bf16PieceOf(kTokens);
    alignas(64) float sums[kMaxBf16Panels * kTokens * kPanelRows] = {};
    alignas(64) std::byte tokens[kTokens * Bf16StrideOf(kTokens)];
    M::Start(count);
    for (int64_t first = 0; first < task.cols; first += kPiece) {
      const auto n = static_cast<int>(task.cols - first < kPiece ? task.cols - first : kPiece);
      Pack<kTokens>(task, count, first, n, tokens);
      M::template Run<kTokens>({.panels = task.panels + first * kPanelRows * 2,
                                .panel_bytes = task.panel_bytes,
                                .num_panels = task.num_panels,
                                .pairs = (n + 1) / 2,
                                .tokens = tokens},
                               sums);
    }
    M::Finish();
    StoreSums<typename M::V>(task, count, kTokens, sums);
  }

  // If M reads whole blocks, tokens beyond `count` repeat the last one; their results are not
  // stored.
  template <int kTokens>
  static void Pack(const LinearTask& task, int count, int64_t first, int n, std::byte* tokens) {
    for (int t = 0; t < (M::kReadsWholeBlocks ? kTokens : count); ++t) {
      const std::byte* row = task.x + (t < count ? t : count - 1) * task.x_stride;
      std::byte* packed = tokens + t * Bf16StrideOf(kTokens);
      __builtin_memcpy(packed, row + 2 * first, 2 * static_cast<size_t>(n));
      for (int i = n; i % 32 != 0; ++i) __builtin_memset(packed + 2 * i, 0, 2);
    }
  }
};

// Lanes are output rows: a word of a panel holds two weights of 16 rows, which one instruction
// multiplies with two broadcast elements of a token. D is a set of SIMD primitives with bf16 dot
// products (avx512bf16/dot.h).
template <class D>
class Bf16Multiply {
 public:
  using V = D;
  static constexpr int kMaxTokens = 12;
  static constexpr bool kReadsWholeBlocks = true;

  template <typename Body>
  static void ForBlockOf(int n, Body body) {
    if (n == 1) return body(Constant<1>());
    if (n == 2) return body(Constant<2>());
    if (n <= 4) return body(Constant<4>());
    if (n <= 8) return body(Constant<8>());
    return body(Constant<12>());
  }

  // Called before and after the pieces of a block.
  static void Start(int /*num_tokens*/) {}
  static void Finish() {}

  // Adds the products of a piece to sums [panel][kTokens][16].
  template <int kTokens>
  static void Run(const Bf16Piece& piece, float* sums) {
    // Enough sums to hide the latency of their chains, and no more than there are registers.
    constexpr int kWidth = kTokens <= 4 ? 4 : 2;
    int p = 0;
    for (; p + kWidth <= piece.num_panels; p += kWidth) Panels<kTokens, kWidth>(piece, p, sums);
    for (; p < piece.num_panels; ++p) Panels<kTokens, 1>(piece, p, sums);
  }

 private:
  using F = typename D::F;
  using I = typename D::I;
  static_assert(D::kLanes == kPanelRows);

  // Adds the products of panels [p, p + kWidth) to their sums [token][16].
  template <int kTokens, int kWidth>
  static void Panels(const Bf16Piece& piece, int p, float* sums) {
    sums += p * kTokens * kPanelRows;
    const std::byte* panel = piece.panels + p * piece.panel_bytes;
    const std::byte* token = piece.tokens;
    F sum[kTokens][kWidth];
#pragma GCC unroll 12
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (int v = 0; v < kWidth; ++v) {
        sum[t][v] = D::Load(sums + (v * kTokens + t) * kPanelRows);
      }
    }
    for (int i = 0; i < piece.pairs; ++i, panel += 4 * kPanelRows, token += 4) {
      I w[kWidth];
#pragma GCC unroll 4
      for (int v = 0; v < kWidth; ++v) {
        w[v] = D::LoadInt(panel + v * piece.panel_bytes);
        // Busy multipliers keep the hardware prefetcher from running far enough ahead: fetch the
        // same part of the next panels, which may be the next item's or none.
        if constexpr (kTokens >= 4) {
          Prefetch(panel + (kWidth + v) * piece.panel_bytes, 4 * kPanelRows);
        }
      }
#pragma GCC unroll 12
      for (int t = 0; t < kTokens; ++t) {
        const I x = D::BroadcastPair(token + t * Bf16StrideOf(kTokens));
#pragma GCC unroll 4
        for (int v = 0; v < kWidth; ++v) sum[t][v] = D::AddDot(sum[t][v], w[v], x);
      }
    }
#pragma GCC unroll 12
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (int v = 0; v < kWidth; ++v) {
        D::Store(sums + (v * kTokens + t) * kPanelRows, sum[t][v]);
      }
    }
  }
};

}  // namespace tokamak::cpu
