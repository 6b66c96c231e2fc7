// How attention on tensor cores brings tiles of keys and values, or of latents, to shared memory.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "ops/cuda/attention_layout.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/ptx.h"
#include "ops/cuda/ring.cuh"
#include "ops/cuda/tensor_map.h"

namespace tokamak::cuda::mma_attention {

inline constexpr int kKeyTileBits = 6;
inline constexpr int kKeyTile = 1 << kKeyTileBits;
inline constexpr int kRowBytes = 128;             // of a box's row, which a swizzle spans
inline constexpr int kStripDims = kRowBytes / 2;  // elements of such a row
inline constexpr int kStripBytes = kKeyTile * kRowBytes;
inline constexpr int kStep = 16;  // columns of a and rows of b in a product
static_assert(kSplitKeys % kKeyTile == 0);

// A head takes whole strips. TMA fills what a short last one lacks with zeros.
template <int kHeadDim>
inline constexpr int kStrips = (kHeadDim + kStripDims - 1) / kStripDims;
template <int kHeadDim>
inline constexpr int kStageBytes = kStrips<kHeadDim>* kStripBytes;

// A unit's rows, numbered from 0, and the keys that they see.
struct Rows {
  __device__ Rows(const AttentionArgs& a, const AttentionUnit& unit)
      : first_token(unit.first_token),
        first_position(unit.first_position),
        shared_last_key(unit.shared_last_key),
        first_row(unit.first_row),
        count(unit.num_rows),
        group(a.group),
        window(a.window) {}

  __device__ int64_t Token(int row) const { return first_token + (first_row + row) / group; }
  __device__ int HeadInGroup(int row) const { return (first_row + row) % group; }
  __device__ int Position(int row) const { return first_position + (first_row + row) / group; }
  __device__ int LastKey(int row) const { return max(Position(row), shared_last_key); }
  __device__ int FirstKey(int row) const {
    return window > 0 ? max(0, Position(row) + 1 - window) : 0;
  }
  // The first key that any of the rows sees.
  __device__ int FirstKey() const { return FirstKey(0); }
  __device__ int LastKey() const { return LastKey(count - 1); }

  const int first_token, first_position, shared_last_key, first_row, count, group, window;
};

// The tiles of a split, or of splits up to end_split, that at least one of the rows sees. Their
// first keys are begin, begin + kKeyTile, ..., below end.
struct KeyTiles {
  __device__ KeyTiles(const Rows& rows, int split) : KeyTiles(rows, split, split + 1) {}
  __device__ KeyTiles(const Rows& rows, int begin_split, int end_split)
      : begin(max(begin_split * kSplitKeys, rows.FirstKey() / kKeyTile * kKeyTile)),
        end(min(end_split * kSplitKeys, rows.LastKey() + 1)) {}
  __device__ int Count() const { return max(0, end - begin + kKeyTile - 1) / kKeyTile; }
  const int begin, end;
};

// log2 of a power of two.
__device__ inline int LogOf(int power) { return __popc(static_cast<unsigned>(power) - 1); }

// Each lane looks up a block of a split, so that all are there after one wait. Blocks whose keys no
// row sees may be missing.
__device__ inline int32_t LaneBlock(const Rows& rows, const int32_t* table, int split,
                                    int block_bits) {
  const int first_key = split * kSplitKeys;
  const int index = (first_key >> block_bits) + static_cast<int>(threadIdx.x % kWarp);
  const int first = max(rows.FirstKey(), first_key) >> block_bits;
  const int last = min(rows.LastKey(), first_key + kSplitKeys - 1) >> block_bits;
  return first <= index && index <= last ? table[index] : 0;
}

// The loading warp's work: requests the keys and then the values of every tile of every unit.
// Memory has the `stages` and their `ring`.
//
// Requests of the CTA's first split overlap with the kernel ahead. Plan and block tables are
// written before the step's first kernel begins: AttentionPlan::Fill ends in a copy, which no
// kernel behind it overtakes. Positions before a sequence's first token of the step were stored by
// earlier steps. So the kernels of the step, which may still run, write none of these. Only boxes
// with positions of this step wait for the kernel ahead.
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
        box_rows_(min(a.cache.block_size, kKeyTile)),
        block_bits_(LogOf(a.cache.block_size)) {
    if (lane_ == 0) {
      ptx::PrefetchMap(keys_);
      ptx::PrefetchMap(values_);
    }
  }

  // Waits for the kernel ahead. Requests the next unit first, and looks up its blocks last: the
  // lookups wait for memory three times, which takes longer than the computation of a few keys.
  __device__ void Load(const AttentionUnit& unit, int kv_head, const AttentionUnit& next_unit) {
    const AttentionUnit next = next_unit;
    const Rows rows(a_, unit);
    if (table_ == nullptr) LookUp(unit);
    LoadSplit(rows, block_, unit.begin_part, kv_head);
    for (int split = unit.begin_part + 1; split < unit.end_part; ++split) {
      LoadSplit(rows, LaneBlock(rows, table_, split, block_bits_), split, kv_head);
    }
    LookUp(next);
  }

 private:
  enum class Boxes { kAll, kOld, kNew };  // old: with positions of earlier steps only

  // Finds the blocks of a unit's first split.
  __device__ void LookUp(const AttentionUnit& unit) {
    table_ = a_.block_tables + a_.table_rows[unit.sequence] * a_.table_stride;
    block_ = LaneBlock(Rows(a_, unit), table_, unit.begin_part, block_bits_);
  }

  // `block`: what LaneBlock returned for the split.
  __device__ void LoadSplit(const Rows& rows, int32_t block, int split, int kv_head) {
    constexpr int kSlots = decltype(Memory::ring)::kCount;
    const KeyTiles tiles(rows, split);
    const Keys keys = {.begin = tiles.begin,
                       .count = tiles.Count(),
                       .first = rows.FirstKey(),
                       .last = rows.LastKey(),
                       .num_old = rows.first_position,
                       .kv_head = kv_head,
                       .first_block = split * kSplitKeys >> block_bits_,
                       .block = block};
    const int fills = 2 * keys.count;
    const int early = has_waited_ ? 0 : min(kSlots, fills);
#pragma unroll 1
    for (int n = 0; n < early + fills; ++n) {
      if (n == early) ptx::WaitForKernelAhead();
      const int i = n < early ? n : n - early;
      LoadTile(keys, i, n < early ? Boxes::kOld : i < early ? Boxes::kNew : Boxes::kAll);
    }
    has_waited_ = true;
    fill_ += static_cast<unsigned>(fills);
  }

  // The keys of a split that some row sees.
  struct Keys {
    int begin, count;  // tiles
    int first, last;   // of the unit, inclusive
    int num_old;       // positions of earlier steps
    int kv_head;
    int first_block;  // of the split, in the sequence
    int32_t block;    // in the cache: the lane's of the split
  };

  // Loads only boxes with keys that some row sees: others may have no block.
  __device__ void LoadTile(const Keys& keys, int i, Boxes which) {
    const unsigned fill = fill_ + static_cast<unsigned>(i);
    const unsigned slot = memory_.ring.Slot(fill);
    const int tile = keys.begin + i / 2 * kKeyTile;
    const int box_bits = min(block_bits_, kKeyTileBits);
    const int begin = max(0, keys.first - tile) >> box_bits;
    const int end = (min(kKeyTile - 1, keys.last - tile) >> box_bits) + 1;
    const int boxes = (end - begin) * kStrips<kHeadDim>;
    const int strip = lane_ % kStrips<kHeadDim>;
    const int row = (begin + lane_ / kStrips<kHeadDim>)*box_rows_;
    const int32_t block =
        __shfl_sync(kAllLanes, keys.block, ((tile + row) >> block_bits_) - keys.first_block);
    if (which != Boxes::kNew) {
      memory_.ring.WaitUntilEmpty(fill);
      if (lane_ == 0) memory_.ring.Expect(fill, boxes * box_rows_ * kRowBytes);
      __syncwarp();
    }
    const bool is_old = tile + row + box_rows_ <= keys.num_old;
    if (lane_ < boxes && (which == Boxes::kAll || is_old == (which == Boxes::kOld))) {
      const int in_block =
          (keys.kv_head << block_bits_) + ((tile + row) & ((1 << block_bits_) - 1));
      ptx::LoadBox(memory_.stages[slot] + strip * kStripBytes + row * kRowBytes,
                   i % 2 == 0 ? keys_ : values_, {strip * kStripDims, in_block, block},
                   &memory_.ring.filled[slot]);
    }
  }

  const CUtensorMap* keys_;
  const CUtensorMap* values_;
  const AttentionArgs& a_;
  Memory& memory_;
  const int lane_, box_rows_, block_bits_;
  unsigned fill_ = 0;
  bool has_waited_ = false;
  // The unit that Load takes next: its block table, and the lane's block of its first split.
  const int32_t* table_ = nullptr;
  int32_t block_ = 0;
};

// Returns where 16 bytes of a stage lie: chunk number `chunk` of a row.
template <int kBytesOfStrip = kStripBytes>
__device__ const uint8_t* ChunkOf(const uint8_t* stage, int row, int chunk) {
  return stage + chunk / 8 * kBytesOfStrip + row * kRowBytes + ((chunk % 8) ^ (row % 8)) * 16;
}

// Calls run(unit, KV head, next unit) for this CTA's share of the jobs. Each of the `count` units
// has a job for each KV head. The heads of a unit are successive jobs, so that few units still
// engage all SMs. After the last job the next unit is any. It is a reference to global memory.
template <typename Run>
__device__ void ForEachJob(const AttentionArgs& a, const AttentionUnit* units, int count, Run run) {
  const int heads = a.cache.num_kv_heads;
  const int jobs = count * heads;
  const auto step = static_cast<int>(gridDim.x);
  for (int job = static_cast<int>(blockIdx.x); job < jobs; job += step) {
    const AttentionUnit unit = units[job / heads];
    run(unit, job % heads, units[min(job + step, jobs - 1) / heads]);
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

// Calls launch(std::integral_constant) for a head size of HasMmaAttention.
template <typename Launch>
cudaError_t WithHeadDim(int32_t head_dim, Launch launch) {
  switch (head_dim) {
    case 32:
      return launch(std::integral_constant<int, 32>());
    case 64:
      return launch(std::integral_constant<int, 64>());
    case 96:
      return launch(std::integral_constant<int, 96>());
    case 128:
      return launch(std::integral_constant<int, 128>());
    case 256:
      return launch(std::integral_constant<int, 256>());
    default:
      return cudaErrorInvalidValue;
  }
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
