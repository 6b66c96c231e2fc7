#include "runner/kv_pool.h"

#include <algorithm>

#include "base/error.h"

namespace tokamak {
namespace {

constexpr int64_t kAlignment = 64;  // bytes; a cache line

int64_t AlignUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool IsSwap(const CopyBlock& copy) {
  return copy.source_tier == Tier::kHost || copy.destination_tier == Tier::kHost;
}

// Whether a copy within the device and a swap use the same device block.
bool Touch(const CopyBlock& inside, const CopyBlock& swap) {
  const BlockId block = swap.source_tier == Tier::kDevice ? swap.source : swap.destination;
  return inside.source == block || inside.destination == block;
}

}  // namespace

KvPool::KvPool(Ops& ops)
    : ops_(&ops),
      swap_stream_(ops.MakeStream()),
      swapped_(ops.MakeEvent()),
      in_order_(ops.MakeEvent()) {}

KvBlockLayout KvBlockLayout::Make(const nn::CacheLayout& cache, int32_t block_size, DType dtype) {
  KvBlockLayout layout;
  std::vector<int64_t> group_bytes(cache.groups.size(), 0);
  for (const nn::KvLayerSpec& layer : cache.layers) {
    int64_t& end = group_bytes[static_cast<size_t>(layer.group)];
    const auto bytes = [&](int32_t dim) {
      const int64_t elements = int64_t{layer.num_kv_heads} * block_size * dim;
      return AlignUp(static_cast<int64_t>(RowBytes(dtype, elements)));
    };
    const int64_t keys = bytes(layer.head_dim);
    layout.layers.push_back({.k_offset = end, .v_offset = end + layer.ValuesAfter(dtype, keys)});
    end += keys + bytes(layer.StoredValueDim());
  }
  // A stage of a pipeline may have no attention layers. Its blocks hold nothing.
  layout.block_bytes = kAlignment;
  for (const int64_t bytes : group_bytes) layout.block_bytes = std::max(layout.block_bytes, bytes);
  return layout;
}

KvLayerView KvBlockLayout::View(const nn::CacheLayout& cache, size_t layer, int32_t block_size,
                                DType dtype) const {
  KvLayerView view = cache.layers[layer].View();
  view.block_stride = block_bytes;
  view.k_offset = layers[layer].k_offset;
  view.v_offset = layers[layer].v_offset;
  view.dtype = dtype;
  view.block_size = block_size;
  return view;
}

Result<KvPool> KvPool::Create(Ops& ops, const nn::CacheLayout& cache, const Options& options) {
  const KvBlockLayout layout = KvBlockLayout::Make(cache, options.block_size, options.dtype);
  KvPool pool(ops);
  for (const nn::CacheLayout::Group& group : cache.groups) {
    pool.spec_.groups.push_back(
        {.kind = group.kind, .block_size = options.block_size, .window = group.window});
  }
  pool.spec_.block_bytes = layout.block_bytes;
  pool.spec_.num_device_blocks = options.num_device_blocks;
  pool.spec_.num_host_blocks = options.num_host_blocks;
  pool.spec_.original_context = cache.original_context;
  pool.spec_.sequence_state = cache.keeps_states();
  const auto bytes = [&layout](int32_t blocks) {
    return static_cast<size_t>(blocks) * static_cast<size_t>(layout.block_bytes);
  };
  ASSIGN_OR_RETURN(pool.device_,
                   ops.Allocate(bytes(options.num_device_blocks), MemoryKind::kDevice));
  if (options.num_host_blocks > 0) {
    ASSIGN_OR_RETURN(pool.host_,
                     ops.Allocate(bytes(options.num_host_blocks), MemoryKind::kHostPinned));
  }
  for (size_t i = 0; i < cache.layers.size(); ++i) {
    KvLayerView view = layout.View(cache, i, options.block_size, options.dtype);
    view.base = pool.device_.data();
    pool.layers_.push_back(view);
  }
  return pool;
}

std::byte* KvPool::Address(Tier tier, BlockId block) const {
  const Buffer& buffer = tier == Tier::kDevice ? device_ : host_;
  return buffer.data() + block * spec_.block_bytes;
}

bool KvPool::Conflicts(const CopyBlock& copy) const {
  const std::byte* source = Address(copy.source_tier, copy.source);
  const std::byte* destination = Address(copy.destination_tier, copy.destination);
  return std::any_of(batch_.begin(), batch_.end(), [&](const CopyRanges::Range& range) {
    return range.destination == source || range.destination == destination ||
           range.source == destination;
  });
}

void KvPool::Flush(Stream& stream) {
  if (batch_.empty()) return;
  ops_->Run(CopyRanges{.ranges = batch_, .bytes = static_cast<size_t>(spec_.block_bytes)}, stream);
  batch_.clear();
}

void KvPool::CopyOnce(const CopyBlock& copy, Stream& stream) {
  std::byte* source = Address(copy.source_tier, copy.source);
  std::byte* destination = Address(copy.destination_tier, copy.destination);
  const auto bytes = static_cast<size_t>(spec_.block_bytes);
  if (copy.source_tier == Tier::kHost) {
    ops_->CopyToDevice(destination, source, bytes, stream);
  } else if (copy.destination_tier == Tier::kHost) {
    ops_->CopyToHost(destination, source, bytes, stream);
  } else if (source != destination) {
    batch_.push_back({.source = source, .destination = destination});
  }
}

void KvPool::CopyInOrder(std::span<const CopyBlock> copies, Stream& stream) {
  for (const CopyBlock& copy : copies) {
    if (Conflicts(copy)) Flush(stream);
    CopyOnce(copy, stream);
  }
  Flush(stream);
}

void KvPool::CopyBehind(Stream& stream) {
  ops_->Record(*in_order_, stream);
  ops_->WaitFor(*swap_stream_, *in_order_);
}

void KvPool::Copy(std::span<const CopyBlock> copies, Stream& stream) {
  if (std::none_of(copies.begin(), copies.end(), IsSwap)) return CopyInOrder(copies, stream);
  // Whether all swaps can come first.
  bool swaps_first = true;
  for (size_t i = 0; i < copies.size(); ++i) {
    if (!IsSwap(copies[i])) continue;
    swaps_first &= std::none_of(
        copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(i),
        [&](const CopyBlock& earlier) { return !IsSwap(earlier) && Touch(earlier, copies[i]); });
  }
  if (!swaps_first) {
    ops_->WaitFor(stream, *swapped_);
    CopyInOrder(copies, stream);
    CopyBehind(stream);
    return;
  }
  for (const CopyBlock& copy : copies) {
    if (IsSwap(copy)) CopyOnce(copy, *swap_stream_);
  }
  ops_->Record(*swapped_, *swap_stream_);
  ops_->WaitFor(stream, *swapped_);
  for (const CopyBlock& copy : copies) {
    if (IsSwap(copy)) continue;
    if (Conflicts(copy)) Flush(stream);
    CopyOnce(copy, stream);
  }
  Flush(stream);
}

}  // namespace tokamak
