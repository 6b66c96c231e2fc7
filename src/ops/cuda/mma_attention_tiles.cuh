// How attention on tensor cores (mma_attention.cu, wide_attention.cu) brings tiles of keys and
// values to shared memory.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>

#include "ops/cuda/attention_layout.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/ptx.h"
#include "ops/cuda/ring.cuh"
#include "ops/cuda/tensor_map.h"

namespace tokamak::cuda::mma_attention {

inline constexpr int kKeyTile = 64;
inline constexpr int kRowBytes = 128;             // of a box's row, which a swizzle spans
inline constexpr int kStripDims = kRowBytes / 2;  // elements of such a row
inline constexpr int kStripBytes = kKeyTile * kRowBytes;
inline constexpr int kStep = 16;  // columns of a and rows of b in a product
static_assert(kSplitKeys % kKeyTile == 0);

template <int kHeadDim>
inline constexpr int kStrips = kHeadDim / kStripDims;
template <int kHeadDim>
inline constexpr int kStageBytes = kStrips<kHeadDim>* kStripBytes;

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
  // The first key that any of the rows sees.
  __device__ int FirstKey() const { return FirstKey(0); }
  __device__ int LastKey() const { return LastKey(count - 1); }

  const int first_token, first_position, first_row, count, group, window;
};

// The tiles of a split that at least one of the rows sees. Their first keys are begin, begin +
// kKeyTile, ..., below end.
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

// The loading warp's work: requests the keys and then the values of every tile of every unit.
// Memory has the `stages` and their `ring`.
template <int kHeadDim, typename Memory>
class Loader {
 public:
  __device__ Loader(const CUtensorMap* keys, const CUtensorMap* values, const AttentionArgs& a,
                    Memory& memory)
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
  // Loads only boxes with keys that some row sees: others may have no block.
  __device__ void LoadTile(const CUtensorMap* map, const Rows& rows, const int32_t* table,
                           int first, int kv_head) {
    const unsigned slot = memory_.ring.Slot(fill_);
    const int begin = max(0, rows.FirstKey() - first) / box_rows_;
    const int end = min(kKeyTile - 1, rows.LastKey() - first) / box_rows_ + 1;
    const int boxes = (end - begin) * kStrips<kHeadDim>;
    const int strip = lane_ % kStrips<kHeadDim>;
    const int row = (begin + lane_ / kStrips<kHeadDim>)*box_rows_;
    const int block_size = a_.cache.block_size;
    const int32_t block = lane_ < boxes ? table[(first + row) / block_size] : 0;
    memory_.ring.WaitUntilEmpty(fill_);
    if (lane_ == 0) memory_.ring.Expect(fill_, boxes * box_rows_ * kRowBytes);
    __syncwarp();
    if (lane_ < boxes) {
      const int in_block = kv_head * block_size + (first + row) % block_size;
      ptx::LoadBox(memory_.stages[slot] + strip * kStripBytes + row * kRowBytes, map,
                   {strip * kStripDims, in_block, block}, &memory_.ring.filled[slot]);
    }
    ++fill_;
  }

  const CUtensorMap* keys_;
  const CUtensorMap* values_;
  const AttentionArgs& a_;
  Memory& memory_;
  const int lane_, box_rows_;
  unsigned fill_ = 0;
};

// Returns where 16 bytes of a stage lie: chunk number `chunk` of a row.
__device__ inline const uint8_t* ChunkOf(const uint8_t* stage, int row, int chunk) {
  return stage + chunk / 8 * kStripBytes + row * kRowBytes + ((chunk % 8) ^ (row % 8)) * 16;
}

// Calls run(unit, KV head) for this CTA's share of the jobs: one job per unit, of `count`, and KV
// head. The heads of a unit are successive jobs, so that few units still engage all SMs.
template <typename Run>
__device__ void ForEachJob(const AttentionArgs& a, const AttentionUnit* units, int count, Run run) {
  const int heads = a.cache.num_kv_heads;
  for (int job = static_cast<int>(blockIdx.x); job < count * heads;
       job += static_cast<int>(gridDim.x)) {
    const AttentionUnit unit = units[job / heads];
    run(unit, job % heads);
  }
}

// Makes the map of a layer's keys or values, which begin at `offset` in each block. It claims 2^31
// blocks: their number is not known here, and tables name only blocks that exist.
inline CUresult MapCache(const KvLayerView& cache, int64_t offset, CUtensorMap* map) {
  const auto row_bytes = static_cast<uint64_t>(cache.head_dim) * 2;
  const auto rows = static_cast<uint64_t>(cache.num_kv_heads) * cache.block_size;
  return MakeTensorMap(
      {.data = cache.base + offset,
       .element_bytes = 2,
       .sizes = {static_cast<uint64_t>(cache.head_dim), rows, uint64_t{1} << 31},
       .strides = {row_bytes, static_cast<uint64_t>(cache.block_stride)},
       .box = {kStripDims, static_cast<uint32_t>(std::min(cache.block_size, kKeyTile)), 1},
       .swizzle = kRowBytes},
      map);
}

// Launches a kernel of attention with maps of keys and values. A function object `launch` starts
// it.
template <typename Launch>
cudaError_t WithCacheMaps(const AttentionArgs& args, Launch launch) {
  CUtensorMap keys;
  CUtensorMap values;
  if (MapCache(args.cache, args.cache.k_offset, &keys) != CUDA_SUCCESS ||
      MapCache(args.cache, args.cache.v_offset, &values) != CUDA_SUCCESS) {
    return cudaErrorInvalidValue;
  }
  return launch(keys, values);
}

}  // namespace tokamak::cuda::mma_attention
