// How attention on tensor cores brings tiles of a cache in FP8 to shared memory. Four warps read
// the cache's bytes, and store them as bf16 where TMA would have put a bf16 cache's, so the kernels
// compute what they compute for a bf16 cache that holds the same values. Each value of E4M3 is one
// of bf16.
#pragma once

#include <cstdint>

#include "ops/cuda/kernel_form.h"
#include "ops/cuda/mma_attention_tiles.cuh"

namespace tokamak::cuda::mma_attention {

inline constexpr int kFp8LoaderWarps = 4;
inline constexpr int kFp8LoaderThreads = kFp8LoaderWarps * kWarp;

// Two bf16 numbers from two f16 numbers that are exact in bf16.
__device__ inline uint32_t HalvesToBf16(uint32_t halves) {
  const uint32_t low = __float_as_uint(F16::Load(static_cast<uint16_t>(halves)));
  const uint32_t high = __float_as_uint(F16::Load(static_cast<uint16_t>(halves >> 16)));
  return low >> 16 | (high & 0xffff0000);
}

// Pairs of bf16 numbers from four of E4M3, by instructions that all GPUs have: read as an f32, a
// number has an exponent that is too small by 120.
__device__ inline void E4m3ToBf16(uint32_t (&pairs)[2], uint32_t four) {
  const uint32_t nans = ((four & 0x7f7f7f7f) + 0x01010101) & 0x80808080;
  float values[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t code = four << (24 - 8 * i);
    const uint32_t bits = (code & 0x80000000) | (code & 0x7f000000) >> 4;
    values[i] = __fmul_rn(__uint_as_float(bits), 0x1p120f);
  }
  if (nans != 0) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((nans >> (8 * i + 7) & 1) != 0) values[i] = NAN;
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    pairs[i] = __float_as_uint(values[2 * i]) >> 16 |
               (__float_as_uint(values[2 * i + 1]) & 0xffff0000);
  }
}

// The loading warps' work: the tiles of every unit, which the ring then counts as filled when each
// of these warps has arrived.
//
// A thread has 16 bytes of each 64 (kStripDims) of two of a tile's rows. Warps read whole sectors,
// and eight lanes store to different banks. What a thread loads at once is a part. Parts alternate
// between two sets of registers, so that one part arrives while another is converted and stored.
//
// kFills per tile: 2 for keys and values, 1 for latents. A fill has kParts parts. kForProducts:
// wgmma reads the stages. kSlotKeys: if a slot of the ring has fewer keys than a tile, a part is
// the fills of half of the keys.
//
// Rows that no row of the unit sees become zeros. Their positions may have no block.
//
// As with Loader, reads of earlier steps' positions overlap with the kernel ahead. The first tile
// with positions of this step waits for it. Reads go past the L1, which might keep a sector that
// holds both.
template <int kDim, int kFills, int kParts, bool kForProducts, typename Memory,
          KernelForm kForm = KernelForm::kHopper, int kSlotKeys = kKeyTile>
class Fp8Loader {
  static constexpr int kLoads = 2 * kStrips<kDim>;  // of 16 bytes, by a thread for a fill
  static constexpr int kPartLoads = kLoads / kParts;
  static_assert(kLoads % kParts == 0 && kFills * kParts % 2 == 0);
  static constexpr int kHalf = kKeyTile / 2;  // rows
  static_assert(kFp8LoaderThreads == 4 * kHalf);
  static constexpr bool kHasWholeSlots = kSlotKeys == kKeyTile;
  static constexpr unsigned kPartFills = kHasWholeSlots ? 1 : kHalf / kSlotKeys;
  static_assert(kHasWholeSlots || kParts == 2);

 public:
  __device__ Fp8Loader(const AttentionArgs& a, Memory& memory)
      : a_(a),
        memory_(memory),
        block_bits_(LogOf(a.cache.block_size)),
        row_(static_cast<int>(threadIdx.x) % kFp8LoaderThreads / 4),
        piece_(static_cast<int>(threadIdx.x) % 4) {}

  // Looks up the blocks of the unit after this one last, when nothing else is left to do.
  __device__ void Load(const AttentionUnit& unit, int kv_head, const AttentionUnit& next_unit) {
    const AttentionUnit next = next_unit;
    const Rows rows(a_, unit);
    if (table_ == nullptr) LookUp(unit);
    bool is_first = true;
    for (int split = unit.begin_part; split < unit.end_part; ++split) {
      const KeyTiles tiles(rows, split);
      const int32_t block = block_;
      if (split + 1 < unit.end_part) block_ = LaneBlock(rows, table_, split + 1, block_bits_);
      for (int tile = tiles.begin; tile < tiles.end; tile += kKeyTile) {
        LoadTile(rows, tile, block, split * kSplitKeys >> block_bits_, kv_head, is_first);
        is_first = false;
      }
    }
    if (!is_first) StorePart(kFills * kParts - 1, odd_);
    LookUp(next);
  }

 private:
  using Part = uint4[kPartLoads];

  // Finds the blocks of a unit's first split.
  __device__ void LookUp(const AttentionUnit& unit) {
    table_ = a_.block_tables + a_.table_rows[unit.sequence] * a_.table_stride;
    block_ = LaneBlock(Rows(a_, unit), table_, unit.begin_part, block_bits_);
  }

  // Loads a tile's parts, and stores each while the next is under way: the last one of the tile
  // before, if there is one, and all of this one but the last. `block` is the lane's of the split,
  // whose first one is number `first_block` of the sequence.
  __device__ void LoadTile(const Rows& rows, int tile, int32_t block, int first_block, int kv_head,
                           bool is_first) {
    if (!has_waited_ && min(tile + kKeyTile - 1, rows.LastKey()) >= rows.first_position) {
      ptx::WaitForKernelAhead();
      has_waited_ = true;
    }
    const KvLayerView& cache = a_.cache;
    const std::byte* from[2];
    bool is_seen[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = tile + half * kHalf + row_;
      is_seen[half] = rows.FirstKey() <= key && key <= rows.LastKey();
      const int32_t in_cache = __shfl_sync(kAllLanes, block, (key >> block_bits_) - first_block);
      const int in_block = (kv_head << block_bits_) + (key & ((1 << block_bits_) - 1));
      from[half] = cache.base + in_cache * cache.block_stride + in_block * kDim + piece_ * 16;
    }
#pragma unroll
    for (int part = 0; part < kFills * kParts; ++part) {
      Part& loaded = part % 2 == 0 ? even_ : odd_;
      const int64_t offset = part < kParts ? cache.k_offset : cache.v_offset;
#pragma unroll
      for (int i = 0; i < kPartLoads; ++i) {
        const int half = HalfOf(part, i);
        const std::byte* const at = from[half] + offset + StripOf(part, i) * kStripDims;
        const bool is_read = is_seen[half] && IsInHead(StripOf(part, i));
        loaded[i] = is_read ? __ldcg(reinterpret_cast<const uint4*>(at)) : uint4{};
      }
      if (part > 0) {
        StorePart(part - 1, part % 2 == 0 ? odd_ : even_);
      } else if (!is_first) {
        StorePart(kFills * kParts - 1, odd_);
      }
    }
  }
  // The half of the tile and the strip of load `i` of a part.
  static __device__ int HalfOf(int part, int i) {
    return (part % kParts * kPartLoads + i) / kStrips<kDim>;
  }
  static __device__ int StripOf(int part, int i) {
    return (part % kParts * kPartLoads + i) % kStrips<kDim>;
  }
  // Whether the thread's bytes of the strip are part of a head. Beside it are zeros, as from TMA.
  __device__ bool IsInHead(int strip) const {
    return kDim % kStripDims == 0 || strip * kStripDims + piece_ * 16 < kDim;
  }

  __device__ void StorePart(int part, const Part& loaded) {
    if (part % kParts == 0 || !kHasWholeSlots) {
      for (unsigned i = 0; i < kPartFills; ++i) memory_.ring.WaitUntilEmpty(fill_ + i);
    }
    // Of a strip's chunks, the thread has two neighbours.
    const unsigned fill = fill_ + static_cast<unsigned>(row_ / kSlotKeys);
    uint8_t* const stage =
        memory_.stages[memory_.ring.Slot(fill)] + row_ % kSlotKeys * kRowBytes;
    uint8_t* const first = stage + ((2 * piece_) ^ (row_ % 8)) * 16;
    uint8_t* const second = stage + ((2 * piece_ + 1) ^ (row_ % 8)) * 16;
#pragma unroll
    for (int i = 0; i < kPartLoads; ++i) {
      const int half = kHasWholeSlots ? HalfOf(part, i) : 0;
      const int offset = (StripOf(part, i) * kSlotKeys + half * kHalf) * kRowBytes;
      *reinterpret_cast<Four<uint32_t>*>(first + offset) = ToBf16(loaded[i].x, loaded[i].y);
      *reinterpret_cast<Four<uint32_t>*>(second + offset) = ToBf16(loaded[i].z, loaded[i].w);
    }
    if (part % kParts < kParts - 1 && kHasWholeSlots) return;
    if constexpr (kForProducts) ptx::FenceAsyncProxy();
    __syncwarp();
    if (threadIdx.x % kWarp == 0) {
      for (unsigned i = 0; i < kPartFills; ++i) {
        ptx::Arrive(&memory_.ring.filled[memory_.ring.Slot(fill_ + i)]);
      }
    }
    fill_ += kPartFills;
  }
  static __device__ Four<uint32_t> ToBf16(uint32_t low, uint32_t high) {
    uint32_t pairs[2][2];
    if constexpr (kForm == KernelForm::kHopper) {
      uint32_t halves[2][2];
      ptx::E4m3ToHalves(halves[0], low);
      ptx::E4m3ToHalves(halves[1], high);
#pragma unroll
      for (int i = 0; i < 4; ++i) pairs[i / 2][i % 2] = HalvesToBf16(halves[i / 2][i % 2]);
    } else {
      E4m3ToBf16(pairs[0], low);
      E4m3ToBf16(pairs[1], high);
    }
    return {pairs[0][0], pairs[0][1], pairs[1][0], pairs[1][1]};
  }

  const AttentionArgs& a_;
  Memory& memory_;
  const int block_bits_;
  const int row_;    // of the thread, in each half of a tile
  const int piece_;  // of the thread: 16 of a strip's bytes
  unsigned fill_ = 0;
  bool has_waited_ = false;
  // The blocks that come next: the sequence's table, and the lane's of a split.
  const int32_t* table_ = nullptr;
  int32_t block_ = 0;
  Part even_, odd_;
};

}  // namespace tokamak::cuda::mma_attention
