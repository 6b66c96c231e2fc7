// Linear on int8 activations with AMX: one tile instruction multiplies 16 tokens with a panel's 16
// rows, a group of 32 elements at a time (half of one if scales cover 16). The steps after the
// integer sums, and so the bits, are those of every ISA (cpu/int8_kernels.h). Fewer than 16 tokens
// go to the AVX512-VNNI kernel, which is as fast per token.
//
// A piece of a panel is unpacked to signed bytes once for all tokens of a block. Integer sums come
// back through memory, which is slow, so four products are in progress while the previous four are
// scaled.
//
// Bound: per 16 × 16 outputs and group, one tile product (16 cycles), 24 rows of tiles loaded, 16
// stored, and 16 vectors of sums scaled (3 or 4 instructions, 2 or 3 loads each), which dominates.
#pragma once

#include "ops/cpu/amx/tiles.h"
#include "ops/cpu/avx512vnni/dot.h"
#include "ops/cpu/kernels/int8_linear.h"
#include "ops/cpu/kernels/int8_quantize.h"

namespace tokamak::cpu {
namespace {  // NOLINT(google-build-namespaces): one copy per ISA, for its file alone

// Tile products need signed codes.
struct AmxCodes : Avx512Vnni {
  static constexpr bool kSigned = true;
};

// T is Tiles or an emulation of it.
template <class T>
class AmxInt8Linear : Int8Linear<AmxCodes> {
 public:
  // Tokens of a block, which share the unpacked weights.
  static constexpr int kBlockTokens = 64;

  static void Run(const LinearTask& given) {
    LinearTask task = given;
    if (task.num_tokens >= kTile) {
      ForBlockType(task.dtype, [&](auto type) {
        constexpr DType kDType = decltype(type)::value;
        Configure(PartsOfGroup(kDType));
        while (task.num_tokens >= kTile) {
          const int64_t tiles = task.num_tokens / kTile * kTile;
          const int64_t count = tiles < kBlockTokens ? tiles : kBlockTokens;
          Block<kDType>(task, static_cast<int>(count));
          task.num_tokens -= count;
          task.x += count * task.x_stride;
          task.out += count * task.out_stride;
        }
        T::Release();
      });
    }
    if (task.num_tokens > 0) Avx512VnniInt8Kernels()->linear(task);
  }

 private:
  static constexpr int kTile = 16;  // tokens per tile
  static constexpr int kPiece = PieceOf(kTile);
  using Panel = UnpackedPanel<AmxCodes>;
  static constexpr int kBatch = 4;  // products in progress
  static constexpr int kDots = kTile * kPanelRows;

  // Tiles 0 to 3 hold sums, 4 and 5 the tokens' codes, 6 and 7 the panel's.
  static void Configure(int parts) {
    const int words = 8 / parts;
    TileConfig config;
    for (int tile = 0; tile < kBatch; ++tile) config.Set(tile, kTile, 64);
    for (const int tile : {4, 5}) config.Set(tile, kTile, 4 * words);
    for (const int tile : {6, 7}) config.Set(tile, words, 64);
    T::Configure(config);
  }

  template <DType kDType>
  static void Block(const LinearTask& task, int count) {
    constexpr int kTiles = kBlockTokens / kTile;
    alignas(64) float sums[kMaxInt8Panels * kBlockTokens * kPanelRows] = {};
    Tokens<kTile> tokens[kTiles];
    Panel unpacked;
    constexpr int kStep = Panel::kGroups;
    const int64_t groups = task.cols / kActivationBlock;
    for (int64_t first = 0; first < groups; first += kStep) {
      const int n = static_cast<int>(groups - first < kStep ? groups - first : kStep);
      LinearTask rows = task;
      for (int t = 0; t < count; t += kTile, rows.x += kTile * task.x_stride) {
        Pack<kDType>(rows, kTile, first, n, &tokens[t / kTile]);
      }
      for (int p = 0; p < task.num_panels; ++p) {
        unpacked.template Unpack<kDType>(task.panels + p * task.panel_bytes, task.panel_bytes,
                                         first, n,
                                         [](I codes) { return WithoutOffset<kDType>(codes); });
        for (int t = 0; t < count; t += kTile) {
          Multiply<kDType>(unpacked, n * PartsOfGroup(kDType), tokens[t / kTile],
                           sums + (p * kBlockTokens + t) * kPanelRows);
        }
      }
    }
    StoreSums<Avx512>(task, count, kBlockTokens, sums);
  }

  // Subtracts offsets from the codes, once, instead of from each sum.
  template <DType kDType>
  static I WithoutOffset(I codes) {
    constexpr char kOffset = HasMin(kDType) ? 0 : CodesOf<AmxCodes, kDType>::Offset();
    return kOffset == 0 ? codes : _mm512_sub_epi8(codes, _mm512_set1_epi8(kOffset));
  }

  // Adds all units of a piece to sums [token][16].
  template <DType kDType>
  static void Multiply(const Panel& panel, int units, const Tokens<kTile>& tokens, float* sums) {
    constexpr int kParts = PartsOfGroup(kDType);
    alignas(64) int32_t dots[2][kBatch * kDots];
    F sum[kTile];
#pragma GCC unroll 16
    for (int t = 0; t < kTile; ++t) sum[t] = Avx512::Load(sums + t * kPanelRows);
    const int batches = (units + kBatch - 1) / kBatch;
    for (int b = 0; b <= batches; ++b) {
      if (b < batches) {
        const int left = units - b * kBatch;
        StartProducts<kParts>(panel, b * kBatch, left < kBatch ? left : kBatch, tokens,
                              dots[b % 2]);
      }
      if (b == 0) continue;
      const int begin = (b - 1) * kBatch;
      const int end = units - begin < kBatch ? units : begin + kBatch;
      const int32_t* dot = dots[(b - 1) % 2];
      for (int unit = begin; unit < end; ++unit, dot += kDots) {
        AddScaled<HasMin(kDType)>(panel, unit, dot, tokens.scales + unit / kParts,
                                  tokens.extra + unit % kParts * kTile * kPiece + unit / kParts,
                                  sum);
      }
    }
#pragma GCC unroll 16
    for (int t = 0; t < kTile; ++t) Avx512::Store(sums + t * kPanelRows, sum[t]);
  }

  template <int kParts>
  [[gnu::always_inline]] static inline void StartProducts(const Panel& panel, int unit, int count,
                                                          const Tokens<kTile>& tokens,
                                                          int32_t* dots) {
    switch (count) {
      case 1:
        return Products<kParts, 1>(panel, unit, tokens, dots);
      case 2:
        return Products<kParts, 2>(panel, unit, tokens, dots);
      case 3:
        return Products<kParts, 3>(panel, unit, tokens, dots);
      default:
        return Products<kParts, 4>(panel, unit, tokens, dots);
    }
  }

  // Computes the integer sums [16 tokens][16] of kCount units.
  template <int kParts, int kCount>
  [[gnu::always_inline]] static inline void Products(const Panel& panel, int first,
                                                     const Tokens<kTile>& tokens, int32_t* dots) {
    constexpr int kUnitBytes = kActivationBlock / kParts;  // of a token's codes
    Unroll<kCount>([&](auto i) {
      constexpr int kI = decltype(i)::value, kA = 4 + kI % 2, kB = 6 + kI % 2;
      const int unit = first + kI;
      T::template Zero<kI>();
      T::template Load<kB>(panel.words + unit * (8 / kParts) * 64, 64);
      T::template Load<kA>(
          tokens.codes + unit / kParts * kActivationBlock + unit % kParts * kUnitBytes,
          kPiece * kActivationBlock);
      T::template AddDotsInt8<kI, kA, kB>();
    });
    Unroll<kCount>([&](auto i) {
      constexpr int kI = decltype(i)::value;
      T::template Store<kI>(dots + kI * kDots, 64);
    });
  }

  // Scales and adds the integer sums of a unit, for 16 tokens.
  template <bool kHasMin>
  [[gnu::always_inline]] static inline void AddScaled(const Panel& panel, int unit,
                                                      const int32_t* dots, const float* scales,
                                                      const uint32_t* extra, F (&sum)[kTile]) {
    const F scale = Avx512::Load(panel.scale + unit * kPanelRows);
    const F min = kHasMin ? Avx512::Load(panel.min + unit * kPanelRows) : Avx512::Zero();
#pragma GCC unroll 16
    for (int t = 0; t < kTile; ++t) {
      const F dot = Avx512::ToFloat(_mm512_load_si512(dots + t * kPanelRows));
      sum[t] = Avx512::Fma(Avx512::Mul(dot, scale), Avx512::Broadcast(scales[t * kPiece]), sum[t]);
      if constexpr (kHasMin) {
        const float x = __builtin_bit_cast(float, extra[t * kPiece]);
        sum[t] = Avx512::Fma(min, Avx512::Broadcast(x), sum[t]);
      }
    }
  }
};

template <class T>
constexpr Int8Kernels MakeAmxInt8Kernels() {
  return {.tokens_at_once = AmxInt8Linear<T>::kBlockTokens,
          .linear = AmxInt8Linear<T>::Run,
          .quantize = Int8Quantize<Avx512Vnni>::Run};
}

}  // namespace
}  // namespace tokamak::cpu
