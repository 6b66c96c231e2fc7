// The KV cache's memory: one pool of equal blocks on the device, one in host memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "nn/cache_layout.h"
#include "ops/ops.h"
#include "step/step_input.h"

namespace tokamak {

// Where a model's layers lie inside a block. A block holds, layer after layer of one group, keys
// and then values (none for latents): [num_kv_heads, block_size, dim] each, 64-byte aligned. Layers
// of different groups share the same bytes, since a block serves one group at a time; the largest
// group gives the block its size.
struct KvBlockLayout {
  struct Layer {
    int64_t k_offset = 0;  // bytes from the start of a block
    int64_t v_offset = 0;
  };
  std::vector<Layer> layers;
  int64_t block_bytes = 0;

  static KvBlockLayout Make(const nn::CacheLayout& cache, int32_t block_size, DType dtype);
  // A layer in blocks laid out so; its base is left open.
  KvLayerView View(const nn::CacheLayout& cache, size_t layer, int32_t block_size,
                   DType dtype) const;
};

// Owner: the runner.
class KvPool {
 public:
  struct Options {
    int32_t block_size = 0;  // positions
    DType dtype = DType::kF32;
    int32_t num_device_blocks = 0;
    int32_t num_host_blocks = 0;
  };
  // Memory is allocated, not touched: pages that no block uses cost nothing on a CPU.
  static Result<KvPool> Create(Ops& ops, const nn::CacheLayout& cache, const Options& options);

  const CacheSpec& spec() const { return spec_; }
  std::span<const KvLayerView> layers() const { return layers_; }  // one per attention layer

  // The copies, as if in their order, before all later work of the stream. They have been checked:
  // blocks exist, and none goes from host to host. No step in flight uses a block that is written
  // here, or writes one that is read, so what goes to or from the host need not wait for the
  // stream: it has one of its own, and travels while earlier steps compute.
  void Copy(std::span<const CopyBlock> copies, Stream& stream);

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
  std::vector<CopyRanges::Range> batch_;  // device to device, independent, not run yet
  std::unique_ptr<Stream> swap_stream_;
  std::unique_ptr<Event> swapped_;   // after the last copies of swap_stream_
  std::unique_ptr<Event> in_order_;  // after copies that could not go there
};

}  // namespace tokamak
