// Shared by the kernels of latent attention (latent_attention.cu, wide_latent_attention.cu): how
// tiles of latents come to shared memory, and how the kernels are launched.
#pragma once

#include <cstdint>

#include "ops/cuda/latent_attention.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/mma_attention_tiles.cuh"

namespace tokamak::cuda::mma_attention {

// Elements of a latent with its rotated part, which is a key, and of the value that it ends in.
inline constexpr int kKeyDim = 576;
inline constexpr int kValueDim = 512;
inline constexpr int kLatentStrips = kStrips<kKeyDim>;
inline constexpr int kLatentTileBytes = kStageBytes<kKeyDim>;
inline constexpr int kFirstValueChunk = (kKeyDim - kValueDim) / 8;  // of 16 bytes, in a row
static_assert(kKeyDim % kStripDims == 0 && kValueDim % kStripDims == 0);

// The loading warp's work. What it may request before the kernel ahead has ended, and why: see
// Loader. It waits at the first tile with positions of this step.
template <typename Memory>
class LatentLoader {
 public:
  __device__ LatentLoader(const CUtensorMap* latents, const AttentionArgs& a, Memory& memory)
      : latents_(latents),
        a_(a),
        memory_(memory),
        lane_(static_cast<int>(threadIdx.x % kWarp)),
        box_rows_(min(a.cache.block_size, kKeyTile)),
        block_bits_(LogOf(a.cache.block_size)) {
    if (lane_ == 0) ptx::PrefetchMap(latents_);
  }

  __device__ void Load(const AttentionUnit& unit, int, const AttentionUnit&) {
    const Rows rows(a_, unit);
    const int32_t* table = a_.block_tables + a_.table_rows[unit.sequence] * a_.table_stride;
    for (int split = unit.begin_part; split < unit.end_part; ++split) {
      const KeyTiles tiles(rows, split);
      const int32_t block = LaneBlock(rows, table, split, block_bits_);
      for (int first = tiles.begin; first < tiles.end; first += kKeyTile) {
        if (!has_waited_ && min(first + kKeyTile - 1, rows.LastKey()) >= rows.first_position) {
          ptx::WaitForKernelAhead();
          has_waited_ = true;
        }
        LoadTile(rows, first, block, split * kSplitKeys >> block_bits_);
      }
    }
  }

 private:
  // Loads only boxes with keys that some row sees: others may have no block. `block` is the lane's
  // of the split, whose first one is number `first_block` of the sequence.
  __device__ void LoadTile(const Rows& rows, int tile, int32_t block, int first_block) {
    const unsigned fill = fill_++;
    const unsigned slot = memory_.ring.Slot(fill);
    const int box_bits = min(block_bits_, kKeyTileBits);
    const int begin = max(0, rows.FirstKey() - tile) >> box_bits;
    const int end = (min(kKeyTile - 1, rows.LastKey() - tile) >> box_bits) + 1;
    const int boxes = (end - begin) * kLatentStrips;
    memory_.ring.WaitUntilEmpty(fill);
    if (lane_ == 0) memory_.ring.Expect(fill, boxes * box_rows_ * kRowBytes);
    __syncwarp();
    for (int next = 0; next < boxes; next += kWarp) {
      const int box = min(next + lane_, boxes - 1);
      const int strip = box % kLatentStrips;
      const int row = (begin + box / kLatentStrips) * box_rows_;
      const int32_t in_cache =
          __shfl_sync(kAllLanes, block, ((tile + row) >> block_bits_) - first_block);
      if (next + lane_ >= boxes) continue;
      ptx::LoadBox(memory_.stages[slot] + strip * kStripBytes + row * kRowBytes, latents_,
                   {strip * kStripDims, (tile + row) & ((1 << block_bits_) - 1), in_cache},
                   &memory_.ring.filled[slot]);
    }
  }

  const CUtensorMap* latents_;
  const AttentionArgs& a_;
  Memory& memory_;
  const int lane_, box_rows_, block_bits_;
  unsigned fill_ = 0;
  bool has_waited_ = false;
};

// Launches `ctas` CTAs with `shared_bytes` of one of two kernels: one that takes a map of latents
// in bf16 and the arguments, or one for a cache in FP8, which needs no map.
inline cudaError_t LaunchOnLatents(void (*kernel)(CUtensorMap, AttentionArgs), int threads,
                                   void (*fp8_kernel)(AttentionArgs), int fp8_threads,
                                   size_t shared_bytes, const AttentionArgs& args, int ctas,
                                   cudaStream_t stream) {
  if (!LatentAttentionReads(args.cache)) return cudaErrorInvalidValue;
  const auto grid = static_cast<unsigned>(ctas);
  if (args.cache.dtype == DType::kF8E4M3) {
    const cudaError_t error = AllowSharedMemory(fp8_kernel, shared_bytes);
    if (error != cudaSuccess) return error;
    return LaunchGroups({.dependent = true}, fp8_kernel, grid, fp8_threads, shared_bytes, stream,
                        args);
  }
  const cudaError_t error = AllowSharedMemory(kernel, shared_bytes);
  if (error != cudaSuccess) return error;
  CUtensorMap latents;
  if (MapCache(args.cache, args.cache.k_offset, &latents) != CUDA_SUCCESS) {
    return cudaErrorInvalidValue;
  }
  return LaunchGroups({.dependent = true}, kernel, grid, threads, shared_bytes, stream, latents,
                      args);
}

}  // namespace tokamak::cuda::mma_attention
