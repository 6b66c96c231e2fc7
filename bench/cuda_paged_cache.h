// The cache that benchmarks of attention read: several layers, which the L2 cannot hold together,
// and sequences of one length whose blocks are scattered.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "base/ceil_div.h"
#include "cuda_device.h"
#include "ops/cuda/attention_plan.h"

namespace tokamak::cuda {

class PagedCache {
 public:
  // `view` says what a layer's block has, of `layer_bytes` bytes; base and block_stride are filled
  // in. `context`: keys of a sequence.
  PagedCache(Device& device, const KvLayerView& view, int64_t layer_bytes, int batch, int context)
      : device_(device), batch_(batch), context_(context), layer_bytes_(layer_bytes), view_(view) {
    const int64_t num_blocks = seq_blocks() * batch;
    num_layers_ = device.small() ? 2
                                 : static_cast<int>(std::clamp<int64_t>(
                                       CeilDiv(kBeyondL2, num_blocks * layer_bytes), 2, 64));
    memory_ = device.Allocate(num_blocks * num_layers_ * layer_bytes);
    device.FillRandom(memory_, 7, 1);
    view_.base = memory_.data();
    view_.block_stride = num_layers_ * layer_bytes;
    std::mt19937 random(1);
    std::vector<int32_t> blocks(static_cast<size_t>(num_blocks));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random);
    tables_ = device.Upload(blocks);
    std::vector<int32_t> rows(static_cast<size_t>(batch));
    std::iota(rows.begin(), rows.end(), 0);
    table_rows_ = device.Upload(rows);
  }

  int num_layers() const { return num_layers_; }
  int64_t seq_blocks() const { return CeilDiv(context_, view_.block_size); }

  // Fills the plan with a step of `num_queries` queries per sequence.
  void Fill(CudaAttentionPlan& plan, int num_queries) const {
    std::vector<int32_t> query_start_loc;
    for (int s = 0; s <= batch_; ++s) query_start_loc.push_back(s * num_queries);
    const std::vector<int32_t> seq_lens(static_cast<size_t>(batch_), context_);
    plan.Fill(
        {.query_start_loc = query_start_loc,
         .seq_lens = seq_lens,
         .device_query_start_loc = {},
         .device_seq_lens = {},
         .table_rows = Tensor(table_rows_.data(), DType::kI32, {batch_}),
         .block_tables = Tensor(tables_.data(), DType::kI32, {int64_t{batch_}, seq_blocks()})},
        device_.stream());
    device_.Synchronize();
  }

  // The arguments that a layer's attention takes from the cache and the plan.
  AttentionArgs Args(const CudaAttentionPlan& plan, int layer) const {
    AttentionArgs args = Args(layer);
    args.plan = plan.device();
    args.partials = plan.partials();
    args.counters = plan.counters();
    args.totals = plan.totals();
    return args;
  }
  // The arguments that it takes from the cache.
  AttentionArgs Args(int layer) const {
    AttentionArgs args = {};
    args.cache = view_;
    args.cache.k_offset += layer * layer_bytes_;
    args.cache.v_offset += layer * layer_bytes_;
    args.table_rows = reinterpret_cast<const int32_t*>(table_rows_.data());
    args.block_tables = reinterpret_cast<const int32_t*>(tables_.data());
    args.table_stride = seq_blocks();
    return args;
  }

 private:
  Device& device_;
  const int batch_, context_;
  const int64_t layer_bytes_;
  KvLayerView view_;
  int num_layers_ = 0;
  Buffer memory_, tables_, table_rows_;
};

}  // namespace tokamak::cuda
