// How wide_attention.cu brings tiles of decompressed keys and values to shared memory.
#pragma once

#include <cstdint>

#include "ops/cuda/expanded_attention.h"
#include "ops/cuda/mma_attention_tiles.cuh"
#include "ops/cuda/wgmma_tiles.cuh"

namespace tokamak::cuda::mma_attention {

// The loading warp's work: requests the keys and then the values of every tile of every unit. Keys
// are the strip of rotated elements, which all heads share, and the head's own strips. A tile's
// last rows may be another sequence's, whose keys no row sees.
template <typename Memory>
class ChunkLoader {
 public:
  __device__ ChunkLoader(const CUtensorMap* entries, const CUtensorMap* keys,
                         const CUtensorMap* values, const AttentionArgs& a, Memory& memory)
      : entries_(entries), keys_(keys), values_(values), a_(a), memory_(memory) {}

  __device__ void Load(const AttentionUnit& unit, int head, const AttentionUnit&) {
    const KeyTiles tiles(Rows(a_, unit), unit.begin_part, unit.end_part);
    int row = unit.partial + tiles.begin - unit.begin_part * kSplitKeys;
    for (int first = tiles.begin; first < tiles.end; first += kKeyTile, row += kKeyTile) {
      LoadTile<kStrips<kExpandedKeyDim>>([&](int strip) {
        return strip == 0 ? Strip{entries_, 0, row}
                          : Strip{keys_, head * kExpandedNopeDim + (strip - 1) * kStripDims, row};
      });
      LoadTile<kStrips<kExpandedValueDim>>([&](int strip) {
        return Strip{values_, head * kExpandedValueDim + strip * kStripDims, row};
      });
    }
  }

 private:
  struct Strip {
    const CUtensorMap* map;
    int column, row;
  };

  // One lane requests the strips, so that their maps are in uniform registers.
  template <int kCount, typename Find>
  __device__ void LoadTile(Find find) {
    const unsigned slot = memory_.ring.Slot(fill_);
    memory_.ring.WaitUntilEmpty(fill_);
    if (threadIdx.x % kWarp == 0) {
      memory_.ring.Expect(fill_, kCount * kStripBytes);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const Strip strip = find(i);
        ptx::LoadBox(memory_.stages[slot] + i * kStripBytes, strip.map, {strip.column, strip.row},
                     &memory_.ring.filled[slot]);
      }
    }
    ++fill_;
  }

  const CUtensorMap* const entries_;
  const CUtensorMap* const keys_;
  const CUtensorMap* const values_;
  const AttentionArgs& a_;
  Memory& memory_;
  unsigned fill_ = 0;
};

// Makes the maps of a chunk of `heads` heads. Returns false if one is impossible.
inline bool MapChunk(const ExpandedChunk& chunk, int64_t heads, CUtensorMap* entries,
                     CUtensorMap* keys, CUtensorMap* values) {
  const auto make = [&chunk](const uint16_t* data, int64_t cols, CUtensorMap* map) {
    return wgmma_tiles::MapMatrix(data, chunk.num_rows, cols, cols, kKeyTile, map) == CUDA_SUCCESS;
  };
  return make(chunk.entries, chunk.entry_dim, entries) &&
         make(chunk.keys, heads * kExpandedNopeDim, keys) &&
         make(chunk.values, heads * kExpandedValueDim, values);
}

}  // namespace tokamak::cuda::mma_attention
