#include "ops/cpu/cpu_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "ops/cpu/attention_plan.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/panel_layout.h"
#include "ops/cpu/panel_weight.h"
#include "ops/host/host_ops.h"
#include "ops/sampling/host_sampler.h"

namespace tokamak {
namespace cpu {
namespace {

constexpr int kMaxThreads = 1024;
// Elements (of f32) that make a work item of the elementwise ops worth handing out.
constexpr int64_t kItemElements = 16 << 10;
// Rows of x that an item of Linear takes at most: enough to pay for unpacking its weights.
constexpr int64_t kMaxItemRows = 128;
constexpr int64_t kCopyItemBytes = 256 << 10;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t FloatStride(const Tensor& tensor) {
  return tensor.row_stride / static_cast<int64_t>(sizeof(float));
}

const PanelWeight& Unwrap(const PackedWeight* weight) {
  return static_cast<const PanelWeight&>(*weight);
}

class CpuOps final : public HostOps {
 public:
  CpuOps(const Kernels& kernels, int threads, Buffer tiles)
      : kernels_(kernels),
        name_(std::string("cpu/") + kernels.name),
        pool_(threads),
        tiles_(std::move(tiles)) {}

  std::string_view name() const override { return name_; }
  Result<std::unique_ptr<PackedWeight>> Prepare(const WeightSpec& spec) override {
    return PanelWeight::Make(spec, pool_);
  }
  Result<std::unique_ptr<AttentionPlan>> MakePlan(const AttentionShape& shape) override {
    ASSIGN_OR_RETURN(std::unique_ptr<AttentionPlan> plan,
                     CpuAttentionPlan::Make(shape, pool_.num_threads()));
    return plan;
  }
  Result<std::unique_ptr<Sampler>> MakeSampler(const SamplerShape& shape) override {
    return MakeHostSampler(shape, &pool_);
  }

  using HostOps::Run;
  void Run(const Embed& op, Stream& stream) override;
  void Run(const AddRmsNorm& op, Stream& stream) override;
  void Run(const Linear& op, Stream& stream) override;
  void Run(const GatedActivation& op, Stream& stream) override;
  void Run(const RopeAndStore& op, Stream& stream) override;
  void Run(const Attention& op, Stream& stream) override;
  void Run(const GatherRows& op, Stream& stream) override;
  void Run(const CopyRanges& op, Stream& stream) override;

 private:
  // Calls body(begin, end) on ranges of rows that together cover [0, rows).
  template <typename Body>
  void ForRows(int64_t rows, int64_t elements_per_row, Body body);
  float* Tile(int worker) const {
    return reinterpret_cast<float*>(tiles_.data()) + worker * static_cast<int64_t>(kTileFloats);
  }
  void EmbedRow(const PanelWeight& table, int64_t row, float* tile, float* out) const;
  void StoreToken(const RopeAndStore& op, int64_t token) const;
  void AttendUnit(const Attention& op, const AttentionUnit& unit, int kv_head, int worker) const;

  const Kernels& kernels_;
  const std::string name_;
  ThreadPool pool_;
  Buffer tiles_;  // kTileFloats per worker
};

template <typename Body>
void CpuOps::ForRows(int64_t rows, int64_t elements_per_row, Body body) {
  const int64_t step = std::max<int64_t>(1, kItemElements / std::max<int64_t>(1, elements_per_row));
  pool_.ParallelFor(CeilDiv(rows, step), [&](int64_t item, int) {
    body(item * step, std::min(rows, (item + 1) * step));
  });
}

void CpuOps::EmbedRow(const PanelWeight& table, int64_t row, float* tile, float* out) const {
  const PanelSegment* segment = table.segments().data();
  while (row >= segment->first_row + segment->rows) ++segment;
  const int64_t local = row - segment->first_row;
  const std::byte* panel = segment->data + local / kPanelRows * segment->panel_bytes;
  const int64_t lane = local % kPanelRows;
  for (int64_t k = 0; k < table.cols(); k += kChunk) {
    const int64_t count = std::min<int64_t>(kChunk, table.cols() - k);
    kernels_.unpack(segment->dtype, panel, k, count, tile);
    for (int64_t i = 0; i < count; ++i) out[k + i] = tile[i * kPanelRows + lane];
  }
}

void CpuOps::Run(const Embed& op, Stream&) {
  const PanelWeight& table = Unwrap(op.table);
  const auto* ids = static_cast<const int32_t*>(op.ids.data);
  // A row costs the unpacking of its whole panel.
  const int64_t step =
      std::max<int64_t>(1, kItemElements / std::max<int64_t>(1, table.cols() * kPanelRows));
  const int64_t num_tokens = op.out.rows();
  pool_.ParallelFor(CeilDiv(num_tokens, step), [&](int64_t item, int worker) {
    for (int64_t t = item * step; t < std::min(num_tokens, (item + 1) * step); ++t) {
      CHECK(0 <= ids[t] && ids[t] < table.rows());
      EmbedRow(table, ids[t], Tile(worker), op.out.Row<float>(t));
    }
  });
}

void CpuOps::Run(const AddRmsNorm& op, Stream&) {
  CHECK(op.out.dtype == DType::kF32);
  ForRows(op.residual.rows(), op.residual.cols(), [&](int64_t begin, int64_t end) {
    kernels_.add_rms_norm({.x = op.x != nullptr ? op.x->Row<float>(begin) : nullptr,
                           .residual = op.residual.Row<float>(begin),
                           .weight = static_cast<const float*>(op.weight.data),
                           .out = op.out.Row<float>(begin),
                           .x_stride = op.x != nullptr ? FloatStride(*op.x) : 0,
                           .residual_stride = FloatStride(op.residual),
                           .out_stride = FloatStride(op.out),
                           .num_rows = end - begin,
                           .cols = op.residual.cols(),
                           .eps = op.eps});
  });
}

void CpuOps::Run(const Linear& op, Stream&) {
  const PanelWeight& weight = Unwrap(op.weight);
  const int64_t num_tokens = op.x.rows();
  if (num_tokens == 0) return;
  CHECK(op.x.dtype == DType::kF32 && op.x.cols() == weight.cols());
  // Small weights are cut finer, to feed all cores. How items are cut changes no result.
  const int64_t width = CeilDiv(weight.rows(), kPanelRows) >= 16 * kMaxPanels ? kMaxPanels : 2;
  int64_t num_groups = 0;
  for (const PanelSegment& segment : weight.segments()) {
    num_groups += CeilDiv(segment.panels, width);
  }
  const int64_t item_rows = CeilDiv(num_tokens, CeilDiv(num_tokens, kMaxItemRows));
  const float* bias = op.bias.empty() ? nullptr : static_cast<const float*>(op.bias.data);
  pool_.ParallelFor(num_groups * CeilDiv(num_tokens, item_rows), [&](int64_t item, int worker) {
    int64_t group = item % num_groups;
    const PanelSegment* segment = weight.segments().data();
    for (; group >= CeilDiv(segment->panels, width); ++segment) {
      group -= CeilDiv(segment->panels, width);
    }
    const int64_t panel = group * width;
    const int64_t panels = std::min(width, segment->panels - panel);
    const int64_t output = segment->first_row + panel * kPanelRows;
    const int64_t row = item / num_groups * item_rows;
    kernels_.linear(
        {.dtype = segment->dtype,
         .panels = segment->data + panel * segment->panel_bytes,
         .panel_bytes = segment->panel_bytes,
         .num_panels = static_cast<int>(panels),
         .cols = weight.cols(),
         .x = op.x.Row<float>(row),
         .x_stride = FloatStride(op.x),
         .num_tokens = std::min(item_rows, num_tokens - row),
         .bias = bias != nullptr ? bias + output : nullptr,
         .out = op.out.Row<float>(row) + output,
         .out_stride = FloatStride(op.out),
         .num_outputs = std::min(panels * kPanelRows, segment->rows - panel * kPanelRows),
         .tile = Tile(worker)});
  });
}

void CpuOps::Run(const GatedActivation& op, Stream&) {
  CHECK(op.out.dtype == DType::kF32);
  const int64_t width = op.out.cols();
  ForRows(op.out.rows(), 4 * width, [&](int64_t begin, int64_t end) {
    const float* gate = op.gate_up.Row<float>(begin);
    kernels_.gate(
        {.kind = op.activation == Activation::kSilu ? GateKind::kSilu : GateKind::kGeluTanh,
         .gate = gate,
         .up = gate + width,
         .out = op.out.Row<float>(begin),
         .in_stride = FloatStride(op.gate_up),
         .out_stride = FloatStride(op.out),
         .num_rows = end - begin,
         .cols = width});
  });
}

void CpuOps::StoreToken(const RopeAndStore& op, int64_t token) const {
  const KvLayerView& cache = op.cache;
  const int64_t slot = static_cast<const int64_t*>(op.slots.data)[token];
  RopeTask task;
  task.head_dim = cache.head_dim;
  task.norm_eps = op.norm_eps;
  if (op.rope != nullptr) {
    const int32_t position = static_cast<const int32_t*>(op.positions.data)[token];
    task.cosines = op.rope->cos_sin.Row<float>(position);
    task.sines = task.cosines + op.rope->rotary_dim / 2;
    task.rotary_dim = op.rope->rotary_dim;
    task.half_split = op.rope->style == RopeStyle::kHalfSplit;
  }
  task.heads = op.q.Row<float>(token);
  task.num_heads = static_cast<int>(op.q.cols() / cache.head_dim);
  task.norm = op.q_norm != nullptr ? static_cast<const float*>(op.q_norm->data) : nullptr;
  kernels_.rope(task);
  if (slot < 0) return;
  task.heads = op.k.Row<float>(token);
  task.num_heads = cache.num_kv_heads;
  task.norm = op.k_norm != nullptr ? static_cast<const float*>(op.k_norm->data) : nullptr;
  kernels_.rope(task);

  std::byte* block = cache.base + slot / cache.block_size * cache.block_stride;
  const int64_t element = Info(cache.dtype).block_bytes;
  for (int64_t h = 0; h < cache.num_kv_heads; ++h) {
    const int64_t offset =
        (h * cache.block_size + slot % cache.block_size) * cache.head_dim * element;
    kernels_.convert(cache.dtype, op.k.Row<float>(token) + h * cache.head_dim, cache.head_dim,
                     block + cache.k_offset + offset);
    kernels_.convert(cache.dtype, op.v.Row<float>(token) + h * cache.head_dim, cache.head_dim,
                     block + cache.v_offset + offset);
  }
}

void CpuOps::Run(const RopeAndStore& op, Stream&) {
  ForRows(op.q.rows(), op.q.cols() + 2 * op.k.cols(), [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) StoreToken(op, token);
  });
}

// Divides the weighted values by the sum of weights. Adding zero makes a negative zero positive:
// which of the two a row holds may depend on how it was cut.
void WriteAttention(const Attention& op, const QueryBlock& block, int first_head, int group,
                    int head_dim, const AttentionPartial& result) {
  for (int64_t r = 0; r < static_cast<int64_t>(block.num_tokens) * group; ++r) {
    const int64_t token = block.first_token + r / group;
    const int64_t head = first_head + r % group;
    const float* values = result.values + r * PadTo16(head_dim);
    float* out = op.out.Row<float>(token) + head * head_dim;
    for (int i = 0; i < head_dim; ++i) out[i] = values[i] / result.sum[r] + 0.0f;
    if (!op.output_lse.empty()) {
      op.output_lse.Row<float>(token)[head] = result.highest[r] + std::log(result.sum[r]);
    }
  }
}

void CpuOps::AttendUnit(const Attention& op, const AttentionUnit& unit, int kv_head,
                        int worker) const {
  const auto& plan = static_cast<const CpuAttentionPlan&>(*op.plan);
  const QueryBlock& block = plan.blocks()[static_cast<size_t>(unit.block)];
  const KvLayerView& cache = op.cache;
  const int group = plan.group();
  const int head_dim = cache.head_dim;
  const int64_t head_bytes =
      static_cast<int64_t>(cache.block_size) * head_dim * Info(cache.dtype).block_bytes;
  const AttentionTask task = {
      .cache = {.base = cache.base,
                .block_stride = cache.block_stride,
                .k_offset = cache.k_offset + kv_head * head_bytes,
                .v_offset = cache.v_offset + kv_head * head_bytes,
                .dtype = cache.dtype,
                .block_size = cache.block_size,
                .block_table = plan.TableOf(block)},
      .q = op.q.Row<float>(block.first_token) + static_cast<int64_t>(kv_head) * group * head_dim,
      .q_stride = FloatStride(op.q),
      .num_tokens = block.num_tokens,
      .group = group,
      .head_dim = head_dim,
      .scale = op.scale,
      .first_position = block.first_position,
      .window = plan.shape().window,
      .scratch = plan.WorkerScratch(worker)};
  const int64_t rows = static_cast<int64_t>(block.num_tokens) * group;
  AttentionPartial result;
  if (unit.split == AttentionUnit::kAllSplits) {
    result = plan.WorkerPartial(worker, 0, rows);
    kernels_.attend_split(task, block.first_split, result);
    const AttentionPartial next = plan.WorkerPartial(worker, 1, rows);
    for (int64_t split = block.first_split + 1; split < block.end_split; ++split) {
      kernels_.attend_split(task, split, next);
      kernels_.merge(rows, head_dim, next, result);
    }
  } else {
    kernels_.attend_split(task, unit.split, plan.SplitPartial(block, kv_head, unit.split));
    if (!plan.SplitDone(block, kv_head)) return;
    result = plan.SplitPartial(block, kv_head, block.first_split);
    for (int64_t split = block.first_split + 1; split < block.end_split; ++split) {
      kernels_.merge(rows, head_dim, plan.SplitPartial(block, kv_head, split), result);
    }
  }
  WriteAttention(op, block, kv_head * group, group, head_dim, result);
}

void CpuOps::Run(const Attention& op, Stream&) {
  const auto& plan = static_cast<const CpuAttentionPlan&>(*op.plan);
  CHECK(op.out.dtype == DType::kF32 && op.cache.head_dim == plan.shape().head_dim &&
        op.cache.num_kv_heads == plan.shape().num_kv_heads);
  const int kv_heads = op.cache.num_kv_heads;
  pool_.ParallelFor(static_cast<int64_t>(plan.units().size()) * kv_heads,
                    [&](int64_t item, int worker) {
                      AttendUnit(op, plan.units()[static_cast<size_t>(item / kv_heads)],
                                 static_cast<int>(item % kv_heads), worker);
                    });
}

void CpuOps::Run(const GatherRows& op, Stream&) {
  const auto* rows = static_cast<const int32_t*>(op.rows.data);
  const size_t bytes = RowBytes(op.source.dtype, op.source.cols());
  if (bytes == 0) return;
  for (int64_t i = 0; i < op.out.rows(); ++i) {
    CHECK(0 <= rows[i] && rows[i] < op.source.rows());
    std::memcpy(op.out.RowData(i), op.source.RowData(rows[i]), bytes);
  }
}

void CpuOps::Run(const CopyRanges& op, Stream&) {
  if (op.bytes == 0) return;
  const auto step = std::max<int64_t>(1, kCopyItemBytes / static_cast<int64_t>(op.bytes));
  const auto count = static_cast<int64_t>(op.ranges.size());
  pool_.ParallelFor(CeilDiv(count, step), [&](int64_t item, int) {
    for (int64_t i = item * step; i < std::min(count, (item + 1) * step); ++i) {
      const CopyRanges::Range& range = op.ranges[static_cast<size_t>(i)];
      std::memcpy(range.destination, range.source, op.bytes);
    }
  });
}

}  // namespace
}  // namespace cpu

Result<std::unique_ptr<Ops>> MakeCpuOps(const CpuOptions& options) {
  if (options.threads < 0 || options.threads > cpu::kMaxThreads) {
    return InvalidArgument("{} threads: must be between 1 and {}, or 0 for one per core",
                           options.threads, cpu::kMaxThreads);
  }
  ASSIGN_OR_RETURN(const cpu::Kernels* kernels, cpu::ChooseKernels(options.isa));
  const int threads = options.threads == 0 ? ThreadPool::PhysicalCores() : options.threads;
  ASSIGN_OR_RETURN(Buffer tiles, AllocateHostMemory(static_cast<size_t>(threads) *
                                                    cpu::kTileFloats * sizeof(float)));
  return std::unique_ptr<Ops>(std::make_unique<cpu::CpuOps>(*kernels, threads, std::move(tiles)));
}

}  // namespace tokamak
