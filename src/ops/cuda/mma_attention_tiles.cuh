// How attention by mma.sync (mma_attention.cu) brings tiles of keys and values to shared memory.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "ops/cuda/attention_layout.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/ptx.h"
#include "ops/cuda/ring.cuh"

namespace tokamak::cuda::mma_attention {

inline constexpr int kKeyTile = 64;
inline constexpr int kWarps = 4;  // that compute
inline constexpr int kConsumers = kWarps * kWarp;
inline constexpr int kThreads = kConsumers + kWarp;
inline constexpr int kWarpKeys = kKeyTile / kWarps;
inline constexpr int kRowBytes = 128;             // of a box: what a swizzle spans
inline constexpr int kStripDims = kRowBytes / 2;  // elements in it
inline constexpr int kStripBytes = kKeyTile * kRowBytes;
inline constexpr int kRingBytes = 48 << 10;
inline constexpr int kStep = 16;  // columns of a and rows of b in a product
static_assert(kSplitKeys % kKeyTile == 0 && kTileRows == 16 && kWarpKeys == kStep);

template <int kHeadDim>
struct Shape {
  static constexpr int kStrips = kHeadDim / kStripDims;
  static constexpr int kStageBytes = kStrips * kStripBytes;
  static constexpr unsigned kStages = kRingBytes / kStageBytes;
  static constexpr int kWarpDims = kHeadDim / kWarps;
  static constexpr int kPairs = kWarpDims / kStep;  // of 8 columns of values, of a warp
  static_assert(kWarpDims % kStep == 0 && kStages >= 3);

  struct alignas(SwizzleAligned) Memory {
    uint8_t stages[kStages][kStageBytes];
    // bf16; padded, so that ldmatrix meets no bank twice.
    alignas(16) uint16_t weights[kTileRows][kKeyTile + 8];
    float highest[kWarps][kTileRows];
    float sums[kWarps][kTileRows];
    RingBarriers<kStages> ring;
    bool is_last;
  };
};

// A unit's rows, numbered from 0, and the keys that they see.
struct Rows {
  __device__ Rows(const AttentionArgs& a, const AttentionUnit& unit)
      : first_token(unit.first_token),
        first_position(unit.first_position),
        first_row(unit.first_row),
        count(unit.num_rows),
        group(a.group),
        window(a.window) {}

  __device__ int64_t Token(int row) const { return first_token + (first_row + row) / group; }
  __device__ int HeadInGroup(int row) const { return (first_row + row) % group; }
  __device__ int LastKey(int row) const { return first_position + (first_row + row) / group; }
  __device__ int FirstKey(int row) const {
    return window > 0 ? max(0, LastKey(row) + 1 - window) : 0;
  }
  // Of all rows together.
  __device__ int FirstKey() const { return FirstKey(0); }
  __device__ int LastKey() const { return LastKey(count - 1); }

  const int first_token, first_position, first_row, count, group, window;
};

// The tiles of a split that any of the rows sees: first keys [begin, end), in steps of a tile.
struct KeyTiles {
  __device__ KeyTiles(const Rows& rows, int split)
      : begin(max(split * kSplitKeys, rows.FirstKey() / kKeyTile * kKeyTile)),
        end(min((split + 1) * kSplitKeys, rows.LastKey() + 1)) {}
  const int begin, end;
};

// The splits that a unit computes.
struct Splits {
  __device__ explicit Splits(const AttentionUnit& unit)
      : begin(unit.split < 0 ? unit.begin_split : unit.split),
        end(unit.split < 0 ? unit.end_split : unit.split + 1) {}
  const int begin, end;
};

// What the warp that loads does: of every tile of every unit, the keys and then the values.
template <int kHeadDim>
class Loader {
 public:
  using S = Shape<kHeadDim>;

  __device__ Loader(const CUtensorMap* keys, const CUtensorMap* values, const AttentionArgs& a,
                    typename S::Memory& memory)
      : keys_(keys),
        values_(values),
        a_(a),
        memory_(memory),
        lane_(static_cast<int>(threadIdx.x % kWarp)),
        box_rows_(min(a.cache.block_size, kKeyTile)) {}

  __device__ void Load(const AttentionUnit& unit, int kv_head) {
    const Rows rows(a_, unit);
    const int32_t* table = a_.block_tables + a_.table_rows[unit.sequence] * a_.table_stride;
    const Splits splits(unit);
    for (int split = splits.begin; split < splits.end; ++split) {
      const KeyTiles tiles(rows, split);
      for (int first = tiles.begin; first < tiles.end; first += kKeyTile) {
        LoadTile(keys_, rows, table, first, kv_head);
        LoadTile(values_, rows, table, first, kv_head);
      }
    }
  }

 private:
  // Boxes with keys that any row sees: others may have no block.
  __device__ void LoadTile(const CUtensorMap* map, const Rows& rows, const int32_t* table,
                           int first, int kv_head) {
    const unsigned slot = memory_.ring.Slot(fill_);
    const int begin = max(0, rows.FirstKey() - first) / box_rows_;
    const int end = min(kKeyTile - 1, rows.LastKey() - first) / box_rows_ + 1;
    const int boxes = (end - begin) * S::kStrips;
    memory_.ring.WaitUntilEmpty(fill_);
    if (lane_ == 0) memory_.ring.Expect(fill_, boxes * box_rows_ * kRowBytes);
    __syncwarp();
    if (lane_ < boxes) {
      const int strip = lane_ % S::kStrips;
      const int row = (begin + lane_ / S::kStrips) * box_rows_;
      const int block_size = a_.cache.block_size;
      const int in_block = kv_head * block_size + (first + row) % block_size;
      ptx::LoadBox(memory_.stages[slot] + strip * kStripBytes + row * kRowBytes, map,
                   {strip * kStripDims, in_block, table[(first + row) / block_size]},
                   &memory_.ring.filled[slot]);
    }
    ++fill_;
  }

  const CUtensorMap* keys_;
  const CUtensorMap* values_;
  const AttentionArgs& a_;
  typename S::Memory& memory_;
  const int lane_, box_rows_;
  unsigned fill_ = 0;
};

// Where 16 bytes of a stage lie: `chunk` counts them along a row.
__device__ inline const uint8_t* ChunkOf(const uint8_t* stage, int row, int chunk) {
  return stage + chunk / 8 * kStripBytes + row * kRowBytes + ((chunk % 8) ^ (row % 8)) * 16;
}

}  // namespace tokamak::cuda::mma_attention
