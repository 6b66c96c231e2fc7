// Shared by the kernels of attention whose warps share a tile of up to 16 rows (mma_attention.cu,
// latent_attention.cu): how its scores become weights. The first kScorers warps have scored 16 of
// the tile's keys each; all kWarps warps have sums of their own columns. Lanes have rows and
// columns as in mma_attention_rows.cuh. SeenInSplit is for tiles of any height.
#pragma once

#include <cstdint>

#include "ops/cuda/mma_attention_rows.cuh"

namespace tokamak::cuda::mma_attention {

// The keys of a split that any of the rows sees, and those that all rows see.
struct SeenInSplit {
  __device__ SeenInSplit(const Rows& rows, const KeyTiles& tiles)
      : from(rows.FirstKey()),
        to(tiles.end - 1),
        all_from(rows.FirstKey(rows.count - 1)),
        all_to(rows.LastKey(0)) {}

  // Whether all rows see all of the `count` keys from `first` on.
  __device__ bool All(int first, int count) const {
    return all_from <= first && first + count - 1 <= all_to;
  }
  // The steps of 16 keys of the tile from `first` on that any row sees: [BeginStep, EndStep).
  // Weights of other keys are zero, and adding zero changes no sum.
  __device__ int BeginStep(int first) const { return max(0, from - first) / kStep; }
  __device__ int EndStep(int first) const {
    return (min(kKeyTile, to + 1 - first) + kStep - 1) / kStep;
  }

  int from, to, all_from, all_to;
};

// The state of a computing warp for weighing scores. Memory has highest and sums, f32
// [kScorers][kTileRows], and weights, bf16 [kTileRows][at least kKeyTile].
template <typename Memory, int kWarps, int kScorers>
class TileComputer {
  static_assert(kTileRows == 16 && kKeyTile == kScorers * kStep && kScorers <= kWarps);

 protected:
  __device__ TileComputer(const AttentionArgs& a, Memory& memory)
      : a_(a),
        memory_(memory),
        warp_(static_cast<int>(threadIdx.x / kWarp)),
        lane_(static_cast<int>(threadIdx.x % kWarp)),
        scale_(ScoreCap::Scale(a)) {}

  __device__ int RowOf(int i) const { return lane_ / 4 + 8 * i; }
  __device__ void SyncComputers() { ptx::SyncNamed(1, kWarps * kWarp); }
  __device__ bool IsScorer() const { return kScorers == kWarps || warp_ < kScorers; }

  // Before a unit's first Weigh.
  __device__ void TakeKeys(const Rows& rows) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      first_key_[i] = rows.FirstKey(RowOf(i));
      last_key_[i] = rows.LastKey(RowOf(i));
    }
  }

  // Turns scores into weights, for all warps to read, and scales the sums so far to the highest
  // score. scores[j] are those of the rows and of the scorer's keys [8 j, 8 j + 8) of the tile from
  // key `first` on. Scores that are not finite give NaN.
  template <int kGroups>
  __device__ void Weigh(const Rows& rows, int first, float (&scores)[2][4], Sums<kGroups>& sums) {
    const int column = warp_ * kStep + lane_ % 4 * 2;
    const int halves = rows.count > 8 ? 2 : 1;  // of the tile's rows; others may hold anything
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i >= halves || !IsScorer()) break;
      float highest = -INFINITY;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int key = first + column + j * 8 + c;
          float& score = scores[j][2 * i + c];
          if (key < first_key_[i] || key > last_key_[i]) score = -INFINITY;
          highest = fmaxf(highest, score);
        }
      }
      highest = MaxOfRow(highest);
      if (lane_ % 4 == 0) memory_.highest[warp_][RowOf(i)] = highest;
    }
    SyncComputers();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i >= halves) break;
      float highest = memory_.highest[0][RowOf(i)];
#pragma unroll
      for (int w = 1; w < kScorers; ++w) highest = fmaxf(highest, memory_.highest[w][RowOf(i)]);
      float base;
      const float factor = sums.Raise(i, __fmul_rn(highest, scale_), base);
      if (IsScorer()) {
        float weights[2][2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            weights[j][c] = exp2f(fmaf(scores[j][2 * i + c], scale_, -base));
          }
          auto* const to = &memory_.weights[RowOf(i)][column + j * 8];
          *reinterpret_cast<uint32_t*>(to) = PackBf16(weights[j][0], weights[j][1]);
        }
        const float pairs = __fadd_rn(__fadd_rn(weights[0][0], weights[0][1]),
                                      __fadd_rn(weights[1][0], weights[1][1]));
        sums.sum[i] = fmaf(sums.sum[i], factor, pairs);
      }
      sums.ScaleValues(i, factor);
    }
    SyncComputers();
  }

  // Adds up the lanes' sums of weights to the row's.
  template <int kGroups>
  __device__ void AddUpWeights(Sums<kGroups>& sums) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!IsScorer()) break;
      const float sum = SumOfRow(sums.sum[i]);
      if (lane_ % 4 == 0) memory_.sums[warp_][RowOf(i)] = sum;
    }
    SyncComputers();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = memory_.sums[0][RowOf(i)];
#pragma unroll
      for (int w = 1; w < kScorers; ++w) sum = __fadd_rn(sum, memory_.sums[w][RowOf(i)]);
      sums.sum[i] = sum;
    }
  }

  const AttentionArgs& a_;
  Memory& memory_;
  const int warp_, lane_;
  const float scale_;               // to units of log2
  int first_key_[2], last_key_[2];  // that the lane's rows see
};

}  // namespace tokamak::cuda::mma_attention
