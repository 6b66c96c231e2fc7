// The KV cache's memory: a pool of equal blocks on the device, and one in host memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "nn/cache_layout.h"
#include "ops/ops.h"
#include "step/step_input.h"

namespace tokamak {

// A model's layers within a block. A block holds the layers of one group one after another, each
// with its keys and then its values (none for latents): [num_kv_heads, block_size, dim], 64-byte
// aligned. The layers of different groups overlap, because a block serves one group at a time. The
// largest group determines the block size.
struct KvBlockLayout {
  struct Layer {
    int64_t k_offset = 0;  // bytes from the start of a block
    int64_t v_offset = 0;
  };
  std::vector<Layer> layers;
  int64_t block_bytes = 0;

  static KvBlockLayout Make(const nn::CacheLayout& cache, int32_t block_size, DType dtype);
  // A layer's view of such blocks, without a base address.
  KvLayerView View(const nn::CacheLayout& cache, size_t layer, int32_t block_size,
                   DType dtype) const;
};

// Owned by the runner.
class KvPool {
 public:
  struct Options {
    int32_t block_size = 0;  // positions
    DType dtype = DType::kF32;
    int32_t num_device_blocks = 0;
    int32_t num_host_blocks = 0;
  };
  // Memory is allocated but not touched: on a CPU, pages of unused blocks cost nothing.
  static Result<KvPool> Create(Ops& ops, const nn::CacheLayout& cache, const Options& options);

  const CacheSpec& spec() const { return spec_; }
  std::span<const KvLayerView> layers() const { return layers_; }  // one per attention layer

  // Copies as if in list order, before all later work of the stream. Requires that the blocks exist
  // and that no copy goes from host to host. No step in flight uses a block that is written here,
  // or writes one that is read, so swaps run on their own stream without waiting for earlier steps.
  void Copy(std::span<const CopyBlock> copies, Stream& stream);
  // Later copies come behind all work that the stream has been given: blocks of no step in flight
  // have been written.
  void CopyBehind(Stream& stream);

 private:
  explicit KvPool(Ops& ops);
  std::byte* Address(Tier tier, BlockId block) const;
  bool Conflicts(const CopyBlock& copy) const;
  void CopyOnce(const CopyBlock& copy, Stream& stream);
  void CopyInOrder(std::span<const CopyBlock> copies, Stream& stream);
  void Flush(Stream& stream);

  Ops* ops_;
  CacheSpec spec_;
  std::vector<KvLayerView> layers_;
  Buffer device_;
  Buffer host_;
  // Pending copies within the device, independent of each other.
  std::vector<CopyRanges::Range> batch_;
  std::unique_ptr<Stream> swap_stream_;
  std::unique_ptr<Event> swapped_;   // the latest copies of swap_stream_ are done
  std::unique_ptr<Event> in_order_;  // what swap_stream_ last waited for
};

}  // namespace tokamak
