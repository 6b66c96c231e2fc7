// One work item of Linear on int8 activations. A block of up to kMaxTokens tokens is packed by
// pieces of k, so that operands lie at fixed distances; each panel is then read once for all of
// them. Lanes are output rows: a word of a panel holds four weights of 16 rows, which one
// instruction multiplies with four broadcast codes of a token. ISAs with small blocks unpack a
// panel once for several of them, others in registers for each.
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
#include "ops/cpu/kernels/unpacked_panel.h"
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

  // The part of kTokens tokens in a piece of kPiece groups. A single token's codes and scales are
  // not copied.
  template <int kCount, int kGroups = PieceOf(kCount)>
  struct Tokens {
    static constexpr int kTokens = kCount;
    static constexpr int kPiece = kGroups;
    const std::byte* codes;  // [token][kPiece][32]
    const float* scales;     // [token][kPiece]: d
    // For each part of a group, [part][token][kPiece]: d · Σ q in f32, or -offset · Σ q in i32.
    alignas(64) uint32_t extra[2 * kTokens * kPiece];
    alignas(64) std::byte packed_codes[kTokens > 1 ? kTokens* kPiece* kActivationBlock : 1];
    alignas(64) float packed_scales[kTokens > 1 ? kTokens* kPiece : 1];
  };

  // Whether blocks of tokens share unpacked weights. With 12 tokens per block that showed no clear
  // gain. Codes of Q8_0 need no unpacking.
  template <DType kDType>
  static constexpr bool kShares = D::kMaxTokens <= 4 && kDType != DType::kQ8_0;
  // The scales of formats with blocks of 32 are quickly decoded: two token blocks of Q4_0 or Q4_1
  // lose 10% by sharing, eight gain 2 to 8%.
  template <DType kDType>
  static constexpr int kFewestSharedBlocks = LayoutOf(kDType).elements > kActivationBlock ? 2 : 8;
  static constexpr int kSharedBlocks = 128 / D::kMaxTokens;  // at most

  template <DType kDType>
  static void Typed(LinearTask task) {
    if (task.num_tokens > D::kMaxTokens) task.tokens_packed = false;  // each block packs its own
    while (task.num_tokens > 0) {
      const int64_t done = BlockOrShared<kDType>(task);
      task.num_tokens -= done;
      task.x += done * task.x_stride;
      task.out += done * task.out_stride;
    }
  }

  template <DType kDType>
  static int64_t BlockOrShared(const LinearTask& task) {
    if constexpr (kShares<kDType>) {
      if (task.num_tokens >= kFewestSharedBlocks<kDType> * D::kMaxTokens) {
        return SharedBlocks<kDType>(task);
      }
    }
    return Block<kDType>(task);
  }

  // Multiplies a full register block of tokens, or what is left. Up to 8 tokens, as of a sequence
  // with drafts, use a block of their own size; more use the next larger one.
  template <DType kDType>
  static int64_t Block(const LinearTask& task) {
    const int64_t n = task.num_tokens < D::kMaxTokens ? task.num_tokens : D::kMaxTokens;
    Unroll<D::kMaxTokens>([&](auto index) {
      constexpr int kTokens = decltype(index)::value + 1;
      if constexpr (kTokens <= 8 || kTokens % 2 == 0) {
        if (n == kTokens || (kTokens > 8 && n == kTokens - 1)) Tile<kDType, kTokens>(task, n);
      }
    });
    return n;
  }

  // Multiplies as many full blocks as there are, up to kSharedBlocks.
  template <DType kDType>
  static int64_t SharedBlocks(const LinearTask& task) {
    constexpr int kTokens = D::kMaxTokens, kStep = UnpackedPanel<D>::kGroups;
    constexpr int kSums = kTokens * kPanelRows;
    const int64_t full = task.num_tokens / kTokens;
    const int blocks = static_cast<int>(full < kSharedBlocks ? full : kSharedBlocks);
    alignas(64) float sums[kMaxInt8Panels * kSharedBlocks * kSums];
    Tokens<kTokens, kStep> tokens[kSharedBlocks];
    UnpackedPanel<D> unpacked;
    const int64_t groups = task.cols / kActivationBlock;
    for (int64_t first = 0; first < groups; first += kStep) {
      const int n = static_cast<int>(groups - first < kStep ? groups - first : kStep);
      LinearTask block = task;
      for (int b = 0; b < blocks; ++b, block.x += kTokens * task.x_stride) {
        Pack<kDType>(block, kTokens, first, n, &tokens[b]);
      }
      for (int p = 0; p < task.num_panels; ++p) {
        unpacked.template Unpack<kDType>(task.panels + p * task.panel_bytes, task.panel_bytes,
                                         first, n, [](I codes) { return codes; });
        const UnpackedSource<kDType> source = {unpacked};
        for (int lane = 0; lane < kPanelRows; lane += D::kLanes) {
          block = task;
          for (int b = 0; b < blocks; ++b, block.out += kTokens * task.out_stride) {
            Multiply<kDType, 1>(block, kTokens, p, first, n, tokens[b], source, lane,
                                sums + (p * kSharedBlocks + b) * kSums + lane);
          }
        }
      }
    }
    return blocks * kTokens;
  }

  template <DType kDType, int kTokens>
  static int64_t Tile(const LinearTask& task, int64_t count) {
    alignas(64) float sums[kMaxInt8Panels * kTokens * kPanelRows];  // of all pieces except the last
    constexpr int kPiece = PieceOf(kTokens);
    const int64_t groups = task.cols / kActivationBlock;
    // The tile keeps the packed tokens for the next call if all pieces fit.
    using Piece = Tokens<kTokens>;
    constexpr auto kPieces = static_cast<int64_t>(kTileFloats * sizeof(float) / sizeof(Piece));
    const bool keep = task.tile != nullptr && groups <= kPieces * kPiece;
    Piece one;
    Piece* tokens = keep ? reinterpret_cast<Piece*>(task.tile) : &one;
    for (int64_t first = 0; first < groups; first += kPiece) {
      const int n = static_cast<int>(groups - first < kPiece ? groups - first : kPiece);
      if (!keep || !task.tokens_packed) Pack<kDType>(task, count, first, n, tokens);
      for (int p = 0; p < task.num_panels; ++p) {
        // Prefetches what comes soon with few tokens, or else the same part of the next panel,
        // which may be the next item's or none.
        constexpr int64_t kSoon = 8192;
        const PackedSource<kDType> source = {.panel = task.panels + p * task.panel_bytes,
                                             .first = first,
                                             .ahead = kTokens <= 8 ? kSoon : task.panel_bytes};
        constexpr int kWidth = kTokens == 1 ? kVectors : 1;
        for (int lane = 0; lane < kPanelRows; lane += kWidth * D::kLanes) {
          Multiply<kDType, kWidth>(task, count, p, first, n, *tokens, source, lane,
                                   sums + p * kTokens * kPanelRows + lane);
        }
      }
      if (keep) ++tokens;
    }
    return count;
  }

  // Tokens beyond `count` repeat the last one; their results are not stored.
  template <DType kDType, class T>
  static void Pack(const LinearTask& task, int64_t count, int64_t first, int n,
                   T* __restrict tokens) {
    constexpr int kTokens = T::kTokens, kPiece = T::kPiece;
    for (int t = 0; t < kTokens; ++t) {
      const std::byte* row = task.x + (t < count ? t : count - 1) * task.x_stride;
      const std::byte* codes = row + first * kActivationBlock;
      const auto* scales =
          reinterpret_cast<const float*>(row + ActivationScales(task.cols)) + first;
      if constexpr (kTokens == 1) {
        tokens->codes = codes;
        tokens->scales = scales;
      } else {
        std::byte* packed = tokens->packed_codes + t * kPiece * kActivationBlock;
        for (int g = 0; g < n; ++g) {
          __builtin_memcpy(packed + g * kActivationBlock, codes + g * kActivationBlock,
                           kActivationBlock);
        }
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

  // The weights of group `group` of a piece, from the panel itself.
  template <DType kDType>
  struct PackedSource {
    static constexpr PanelLayout kLayout = LayoutOf(kDType);
    static constexpr int kGroups = kLayout.elements / kActivationBlock;

    const std::byte* panel;
    int64_t first;  // group of the panel
    int64_t ahead;  // bytes from here to what Fetch prefetches

    const std::byte* Column(int group) const {
      return panel + (first + group) / kGroups * kLayout.bytes;
    }
    int Index(int group) const { return static_cast<int>((first + group) % kGroups); }

    // The work on a group keeps the hardware prefetcher from running far enough ahead.
    [[gnu::always_inline]] void Fetch(int group) const {
      constexpr int kBytes = kLayout.bytes / kGroups;
      Prefetch(Column(group) + Index(group) * kBytes + ahead, kBytes);
    }
    [[gnu::always_inline]] GroupScales<D, kDType> Scales(int group, int lane) const {
      return GroupScales<D, kDType>::Load(Column(group), Index(group), lane);
    }
    template <int kWord>
    [[gnu::always_inline]] I Word(int group, int lane) const {
      const std::byte* data = Column(group) + kLayout.groups + Index(group) * kLayout.group_bytes;
      return CodesOf<D, kDType>::template Word<kWord>(data, lane);
    }
  };

  // The same from an unpacked panel.
  template <DType kDType>
  struct UnpackedSource {
    const UnpackedPanel<D>& panel;

    void Fetch(int) const {}
    [[gnu::always_inline]] GroupScales<D, kDType> Scales(int group, int lane) const {
      GroupScales<D, kDType> scales;
      for (int part = 0; part < PartsOfGroup(kDType); ++part) {
        const int at = (group * PartsOfGroup(kDType) + part) * kPanelRows + lane;
        scales.scale[part] = D::Load(panel.scale + at);
        if constexpr (HasMin(kDType)) scales.min[part] = D::Load(panel.min + at);
      }
      return scales;
    }
    template <int kWord>
    [[gnu::always_inline]] I Word(int group, int lane) const {
      return D::LoadInt(panel.words + group * UnpackedPanel<D>::kGroupBytes +
                        kWord * UnpackedPanel<D>::kWordBytes + 4 * lane);
    }
  };

  // Multiplies groups [first, first + n) of kWidth vectors of panel p from `lane` on. Between
  // pieces of k the results are in sums [token][16]; after the last piece they go to the outputs.
  template <DType kDType, int kWidth, class T, class Source>
  static void Multiply(const LinearTask& task, int64_t count, int p, int64_t first, int n,
                       const T& tokens, const Source& source, int lane, float* sums) {
    constexpr int kTokens = T::kTokens;
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
      if (lane == 0) source.Fetch(g);
      Group<kDType, kWidth, T>(source, g, codes, tokens.scales + g, tokens.extra + g, lane, sum);
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

  template <DType kDType, int kWidth, class T, class Source>
  [[gnu::always_inline]] static inline void Group(const Source& source, int group,
                                                  const std::byte* codes, const float* scales,
                                                  const uint32_t* extra, int lane,
                                                  F (&sum)[T::kTokens][kWidth]) {
    using Codes = CodesOf<D, kDType>;
    constexpr int kTokens = T::kTokens, kPiece = T::kPiece;
    constexpr int kParts = PartsOfGroup(kDType);
    constexpr int kWords = 8 / kParts;
    GroupScales<D, kDType> weight[kWidth];
    for (int v = 0; v < kWidth; ++v) weight[v] = source.Scales(group, lane + v * D::kLanes);
    Unroll<kParts>([&](auto part) __attribute__((always_inline)) {
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
      Unroll<kWords>([&](auto word) __attribute__((always_inline)) {
        constexpr int kJ = decltype(word)::value;
        constexpr int kWord = kPart * kWords + kJ;
#pragma GCC unroll 4
        for (int v = 0; v < kWidth; ++v) {
          const I w = source.template Word<kWord>(group, lane + v * D::kLanes);
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
