// How attention on tensor cores brings tiles of keys and values to shared memory on GPUs without
// TMA: a warp copies them by cp.async, to where TMA would put them.
#pragma once

#include <cstdint>

#include "ops/cuda/mma_attention_tiles.cuh"

namespace tokamak::cuda::mma_attention {

// The loading warp's work, as that of Loader. A fill of the ring has kFillKeys keys, all or a part
// of a tile's; if kHasValues, their values are the next fill. Copies only the keys that some row
// sees: others may have no block. As with Loader, copies of earlier steps' positions overlap with
// the kernel ahead, on GPUs that have dependent launches. The first tile with positions of this
// step waits for it.
template <int kDim, int kFillKeys, bool kHasValues, typename Memory>
class LaneLoader {
  static constexpr int kChunkBytes = 16;
  static constexpr int kChunks = kDim * 2 / kChunkBytes;  // of a key, or of its values
  static constexpr int kRowChunks = kRowBytes / kChunkBytes;
  static constexpr int kCopied = kWarp / kRowChunks;  // keys at a time

 public:
  __device__ LaneLoader(const AttentionArgs& a, Memory& memory)
      : a_(a),
        memory_(memory),
        block_bits_(LogOf(a.cache.block_size)),
        row_(static_cast<int>(threadIdx.x % kWarp) / kRowChunks),
        chunk_(static_cast<int>(threadIdx.x % kWarp) % kRowChunks) {}

  // Looks up the blocks of the unit after this one last.
  __device__ void Load(const AttentionUnit& unit, int kv_head, const AttentionUnit& next_unit) {
    const AttentionUnit next = next_unit;
    const Rows rows(a_, unit);
    if (table_ == nullptr) LookUp(unit);
    for (int split = unit.begin_part; split < unit.end_part; ++split) {
      const KeyTiles tiles(rows, split);
      const int first_block = split * kSplitKeys >> block_bits_;
      const int32_t block = block_;
      if (split + 1 < unit.end_part) block_ = LaneBlock(rows, table_, split + 1, block_bits_);
      for (int tile = tiles.begin; tile < tiles.end; tile += kKeyTile) {
        if (!has_waited_ && min(tile + kKeyTile - 1, rows.LastKey()) >= rows.first_position) {
          ptx::WaitForKernelAhead();
          has_waited_ = true;
        }
#pragma unroll 1
        for (int first = tile; first < tile + kKeyTile; first += kFillKeys) {
          Copy(rows, first, block, first_block, kv_head, a_.cache.k_offset);
          if constexpr (kHasValues) {
            Copy(rows, first, block, first_block, kv_head, a_.cache.v_offset);
          }
        }
      }
    }
    LookUp(next);
  }
  // Call it after the last unit.
  __device__ void End() { memory_.ring.WaitForLast(fill_); }

 private:
  // Finds the blocks of a unit's first split.
  __device__ void LookUp(const AttentionUnit& unit) {
    table_ = a_.block_tables + a_.table_rows[unit.sequence] * a_.table_stride;
    block_ = LaneBlock(Rows(a_, unit), table_, unit.begin_part, block_bits_);
  }

  // Copies the keys, or the values, of a fill whose first key is `fill_key`. `block` is the lane's
  // of the split, whose first one is number `first_block` of the sequence.
  __device__ void Copy(const Rows& rows, int fill_key, int32_t block, int first_block, int kv_head,
                       int64_t offset) {
    const KvLayerView& cache = a_.cache;
    const std::byte* const from = cache.base + offset + chunk_ * kChunkBytes;
    memory_.ring.WaitUntilEmpty(fill_);
    uint8_t* const stage = memory_.stages[memory_.ring.Slot(fill_)];
#pragma unroll 4
    for (int first = 0; first < kFillKeys; first += kCopied) {
      const int row = first + row_, key = fill_key + row;
      const int32_t in_cache = __shfl_sync(kAllLanes, block, (key >> block_bits_) - first_block);
      const int in_block = (kv_head << block_bits_) + (key & ((1 << block_bits_) - 1));
      if (key < rows.FirstKey() || key > rows.LastKey()) continue;
      const std::byte* const at = from + in_cache * cache.block_stride + in_block * (kDim * 2);
      uint8_t* const to = stage + row * kRowBytes + (chunk_ ^ row % 8) * kChunkBytes;
#pragma unroll
      for (int strip = 0; strip < kStrips<kDim>; ++strip) {
        if (strip * kRowChunks + chunk_ >= kChunks) break;  // the last strip may be shorter
        ptx::CopyAsync16(to + strip * (kFillKeys * kRowBytes), at + strip * kRowBytes);
      }
    }
    memory_.ring.ArriveWhenCopied(fill_++);
  }

  const AttentionArgs& a_;
  Memory& memory_;
  const int block_bits_;
  const int row_, chunk_;  // of the lane, among the keys and in a strip
  unsigned fill_ = 0;
  bool has_waited_ = false;
  // The blocks that come next: the sequence's table, and the lane's of a split.
  const int32_t* table_ = nullptr;
  int32_t block_ = 0;
};

}  // namespace tokamak::cuda::mma_attention
