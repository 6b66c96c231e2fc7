#include "ops/cpu/cpu_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "base/ceil_div.h"
#include "base/check.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "ops/cpu/activation.h"
#include "ops/cpu/attend.h"
#include "ops/cpu/attention_plan.h"
#include "ops/cpu/cache_layout.h"
#include "ops/cpu/gated_delta.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/panel_layout.h"
#include "ops/cpu/panel_weight.h"
#include "ops/cpu/weight_memory.h"
#include "ops/host/host_ops.h"
#include "ops/host/route.h"
#include "ops/sampling/host_sampler.h"

namespace tokamak {
namespace cpu {
namespace {

constexpr int kMaxThreads = 1024;
// f32 elements per work item of the elementwise ops: enough to be worth scheduling, few enough to
// balance the workers.
constexpr int64_t kMinItemElements = 2 << 10;
constexpr int64_t kItemElements = 16 << 10;
constexpr int64_t kCopyItemBytes = 256 << 10;

void CombineRow(const CombineExperts& op, int64_t token, float* out) {
  const int64_t cols = op.out.cols();
  const int32_t* rows = op.rows.Row<int32_t>(token);
  const float* weights = op.weights.Row<float>(token);
  for (int64_t j = 0; j < op.rows.cols(); ++j) {
    const float* x = op.x.Row<float>(rows[j]);
    const float weight = weights[j];
    if (j == 0) {
      for (int64_t i = 0; i < cols; ++i) out[i] = weight * x[i];
    } else {
      for (int64_t i = 0; i < cols; ++i) out[i] += weight * x[i];
    }
  }
  if (op.shared.empty()) return;
  const float* shared = op.shared.Row<float>(token);
  const float gate =
      op.shared_gate.empty() ? 1.0f : 1 / (1 + std::exp(-*op.shared_gate.Row<float>(token)));
  for (int64_t i = 0; i < cols; ++i) out[i] += gate * shared[i];
}

class CpuOps final : public HostOps {
 public:
  CpuOps(const IsaKernels& isa, std::unique_ptr<ThreadPool> own, ThreadPool& pool, Buffer tiles,
         Buffer outputs, std::shared_ptr<Communicator> communicator)
      : HostOps(std::move(communicator)),
        isa_(isa),
        kernels_(*isa.kernels),
        name_(cpu::BackendName(isa)),
        own_pool_(std::move(own)),
        pool_(pool),
        tiles_(std::move(tiles)),
        outputs_(std::move(outputs)),
        packed_(pool.num_threads()) {
    products_.reserve(kMaxExperts);
  }

  std::string_view name() const override { return name_; }
  Capabilities capabilities() const override {
    return Capabilities::All() - Capability::kLatentScratch;
  }
  Result<std::unique_ptr<PackedWeight>> PackWeight(const WeightSpec& spec) override {
    ASSIGN_OR_RETURN(std::unique_ptr<PackedWeight> weight,
                     PanelWeight::Make(spec, isa_, weights_, pool_));
    // Ops that write the weight's input compute f32 rows of its width before rounding.
    RETURN_IF_ERROR(ReserveRows(weight->cols()));
    return weight;
  }
  Result<std::unique_ptr<AttentionPlan>> MakeAttentionPlan(const AttentionShape& shape) override {
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
  bool has_linear_argmax() const override { return true; }
  void Run(const LinearArgmax& op, Stream& stream) override;
  void Run(const AddResidual& op, Stream& stream) override;
  void Run(const Softcap& op, Stream& stream) override;
  void Run(const AddLayerNorm& op, Stream& stream) override;
  void Run(const Clamp& op, Stream& stream) override;
  void Run(const Activate& op, Stream& stream) override;
  void Run(const Convert& op, Stream& stream) override;
  void Run(const RouteTokens& op, Stream& stream) override;
  void Run(const GroupedLinear& op, Stream& stream) override;
  void Run(const CombineExperts& op, Stream& stream) override;
  void Run(const HeadLinear& op, Stream& stream) override;
  void Run(const LatentAttention& op, Stream& stream) override;
  void Run(const CausalConv& op, Stream& stream) override;
  void Run(const GatedDelta& op, Stream& stream) override;
  void Run(const GateOutput& op, Stream& stream) override;

 private:
  // Rows of a work item. A row costs about as much as copying `elements_per_row` elements.
  int64_t ItemRows(int64_t rows, int64_t elements_per_row) const;
  // Computes rows of `out` with write(row, num_rows, f32 [num_rows, cols]); row by row, with
  // rounding, if `out` is not f32. A row costs about as much as copying `elements_per_row`
  // elements.
  template <typename Write>
  void WriteRows(const Tensor& out, int64_t elements_per_row, Write write);
  // Calls body(row) for each row of x. A call costs about as much as reading the row.
  template <typename Body>
  void ForEachRow(const Tensor& x, Body body);
  float* Tile(int worker) const {
    return reinterpret_cast<float*>(tiles_.data()) + worker * static_cast<int64_t>(kTileFloats);
  }
  Status ReserveRows(int64_t cols);
  float* FloatRow(int worker, int64_t cols) const {
    CHECK_MSG(cols <= row_floats_, "the row is longer than the rows of all weights");
    return reinterpret_cast<float*>(rows_.data()) + worker * row_floats_;
  }
  void EmbedRow(const PanelWeight& table, int64_t row, float scale, float* tile, float* out) const;

  const IsaKernels isa_;
  const Kernels& kernels_;  // isa_'s
  const std::string name_;
  const std::unique_ptr<ThreadPool> own_pool_;  // null: pool_ is the caller's
  ThreadPool& pool_;
  WeightMemory weights_;
  Buffer tiles_;    // kTileFloats per worker
  Buffer outputs_;  // kItemOutputs floats per worker
  PackedRows packed_;
  Buffer rows_;  // row_floats_ per worker
  int64_t row_floats_ = 0;
  std::vector<Product> products_;  // of a GroupedLinear or HeadLinear; room for kMaxExperts

  // Maps a weight's address to the weight that followed it last time. In steps of few tokens,
  // waiting threads prefetch that one.
  struct Ahead {
    const std::byte* data = nullptr;
    size_t bytes = 0;
  };
  static constexpr int64_t kFewTokens = 8;
  void FetchNext(const PackedWeight& packed, int64_t num_tokens);
  std::unordered_map<const std::byte*, Ahead> next_;
  const std::byte* previous_ = nullptr;
};

int64_t CpuOps::ItemRows(int64_t rows, int64_t elements_per_row) const {
  const int64_t elements = std::max<int64_t>(1, elements_per_row);
  const int64_t least = CeilDiv(kMinItemElements, elements);
  const int64_t most = std::max(least, kItemElements / elements);
  const int64_t step = std::clamp(CeilDiv(rows, int64_t{pool_.num_threads()}), least, most);
  return rows == 0 ? step : CeilDiv(rows, CeilDiv(rows, step));  // equal items
}

template <typename Write>
void CpuOps::WriteRows(const Tensor& out, int64_t elements_per_row, Write write) {
  const int64_t rows = out.rows(), cols = out.cols();
  const int64_t step = ItemRows(rows, elements_per_row);
  pool_.ParallelFor(CeilDiv(rows, step), [&](int64_t item, int worker) {
    const int64_t begin = item * step, end = std::min(rows, begin + step);
    if (out.dtype == DType::kF32) return write(begin, end - begin, out.Row<float>(begin));
    float* const floats = FloatRow(worker, cols);
    for (int64_t row = begin; row < end; ++row) {
      write(row, 1, floats);
      RoundActivations(isa_, floats, 0, cols, out, row);
    }
  });
}

template <typename Body>
void CpuOps::ForEachRow(const Tensor& x, Body body) {
  const int64_t rows = x.rows();
  const int64_t step = ItemRows(rows, x.cols());
  pool_.ParallelFor(CeilDiv(rows, step), [&](int64_t item, int) {
    for (int64_t row = item * step; row < std::min(rows, (item + 1) * step); ++row) body(row);
  });
}

Status CpuOps::ReserveRows(int64_t cols) {
  if (cols <= row_floats_) return Status();
  ASSIGN_OR_RETURN(
      rows_, AllocateHostMemory(static_cast<size_t>(pool_.num_threads() * cols) * sizeof(float)));
  row_floats_ = cols;
  return Status();
}

void CpuOps::EmbedRow(const PanelWeight& table, int64_t row, float scale, float* tile,
                      float* out) const {
  const PanelSegment* segment = table.segments().data();
  while (row >= segment->first_row + segment->rows) ++segment;
  const int64_t local = row - segment->first_row;
  const std::byte* panel = segment->data + local / kPanelRows * segment->panel_bytes;
  const int64_t lane = local % kPanelRows;
  for (int64_t k = 0; k < table.cols(); k += kChunk) {
    const int64_t count = std::min<int64_t>(kChunk, table.cols() - k);
    kernels_.unpack(segment->dtype, panel, k, count, tile);
    for (int64_t i = 0; i < count; ++i) out[k + i] = scale * tile[i * kPanelRows + lane];
  }
}

void CpuOps::Run(const Embed& op, Stream&) {
  const PanelWeight& table = static_cast<const PanelWeight&>(*op.table);
  const auto* ids = static_cast<const int32_t*>(op.ids.data);
  const int64_t num_tokens = op.out.rows();
  // A row costs the unpacking of its whole panel.
  const int64_t step = ItemRows(num_tokens, table.cols() * kPanelRows);
  pool_.ParallelFor(CeilDiv(num_tokens, step), [&](int64_t item, int worker) {
    for (int64_t t = item * step; t < std::min(num_tokens, (item + 1) * step); ++t) {
      const int64_t row = op.Row(ids[t]);
      float* const out = op.out.Row<float>(t);
      if (row < 0) {
        std::fill_n(out, table.cols(), 0.0f);
      } else {
        EmbedRow(table, row, op.scale, Tile(worker), out);
      }
    }
  });
}

void CpuOps::Run(const AddRmsNorm& op, Stream&) {
  WriteRows(op.out, op.residual.cols(), [&](int64_t row, int64_t num_rows, float* out) {
    kernels_.add_rms_norm({.x = op.x != nullptr ? op.x->Row<float>(row) : nullptr,
                           .residual = op.residual.Row<float>(row),
                           .weight = static_cast<const float*>(op.weight.data),
                           .out = out,
                           .x_stride = op.x != nullptr ? op.x->float_stride() : 0,
                           .residual_stride = op.residual.float_stride(),
                           .out_stride = op.out.float_stride(),
                           .num_rows = num_rows,
                           .cols = op.residual.cols(),
                           .eps = op.eps});
  });
}

void CpuOps::FetchNext(const PackedWeight& packed, int64_t num_tokens) {
  const auto& weight = static_cast<const PanelWeight&>(packed);
  const Ahead self = {weight.data(), static_cast<size_t>(weight.bytes())};
  next_[previous_] = self;
  previous_ = self.data;
  // With more tokens the cores are the limit, not memory.
  const Ahead next = num_tokens <= kFewTokens ? next_[self.data] : Ahead{};
  pool_.FetchWhileWaiting(next.data, next.bytes);
}

void CpuOps::Run(const Linear& op, Stream&) {
  FetchNext(*op.weight, op.x.rows());
  RunLinear(isa_, pool_, reinterpret_cast<float*>(tiles_.data()), packed_, op);
}

void CpuOps::Run(const LinearArgmax& op, Stream&) {
  FetchNext(*op.weight, op.x.rows());
  RunLinearArgmax(isa_, pool_, reinterpret_cast<float*>(tiles_.data()), packed_,
                  reinterpret_cast<float*>(outputs_.data()), op);
}

void CpuOps::Run(const GatedActivation& op, Stream&) {
  const int64_t width = op.out.cols();
  WriteRows(op.out, 4 * width, [&](int64_t row, int64_t num_rows, float* out) {
    const float* gate = op.gate_up.Row<float>(row);
    kernels_.gate({.activation = op.activation,
                   .gate = gate,
                   .up = gate + width,
                   .out = out,
                   .limit = op.limit,
                   .alpha = op.alpha,
                   .in_stride = op.gate_up.float_stride(),
                   .out_stride = op.out.float_stride(),
                   .num_rows = num_rows,
                   .cols = width});
  });
}

void CpuOps::Run(const RopeAndStore& op, Stream&) {
  // Tokens of a batch are mostly neighbours in a sequence. One worker takes the tokens of a panel
  // of keys, because they share cache lines.
  const int64_t num_tokens = op.q.rows();
  const int64_t step = std::min<int64_t>(kKeyPanel, ItemRows(num_tokens, 2 * op.q.cols()));
  pool_.ParallelFor(CeilDiv(num_tokens, step), [&](int64_t item, int) {
    const int64_t end = std::min(num_tokens, (item + 1) * step);
    for (int64_t token = item * step; token < end; ++token) StoreToken(kernels_, op, token);
  });
}

void CpuOps::Run(const Attention& op, Stream&) { Attend(isa_, pool_, op); }

void CpuOps::Run(const GatherRows& op, Stream&) {
  const auto* rows = static_cast<const int32_t*>(op.rows.data);
  const size_t bytes = RowBytes(op.source.dtype, op.source.cols());
  if (bytes == 0) return;
  const auto step = std::max<int64_t>(1, kCopyItemBytes / static_cast<int64_t>(bytes));
  const int64_t count = op.out.rows();
  pool_.ParallelFor(CeilDiv(count, step), [&](int64_t item, int) {
    for (int64_t i = item * step; i < std::min(count, (item + 1) * step); ++i) {
      CHECK(0 <= rows[i] && rows[i] < op.source.rows());
      std::memcpy(op.out.RowData(i), op.source.RowData(rows[i]), bytes);
    }
  });
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

void CpuOps::Run(const AddResidual& op, Stream&) {
  ForEachRow(op.x, [&](int64_t row) {
    const float* x = op.x.Row<float>(row);
    float* residual = op.residual.Row<float>(row);
    for (int64_t i = 0; i < op.x.cols(); ++i) residual[i] += op.scale * x[i];
  });
}

void CpuOps::Run(const Softcap& op, Stream&) {
  ForEachRow(op.x,
             [&](int64_t row) { kernels_.softcap(op.x.Row<float>(row), op.x.cols(), op.cap); });
}

void CpuOps::Run(const AddLayerNorm& op, Stream&) {
  WriteRows(op.out, 2 * op.residual.cols(), [&](int64_t row, int64_t num_rows, float* out) {
    kernels_.add_layer_norm(
        {.x = op.x != nullptr ? op.x->Row<float>(row) : nullptr,
         .residual = op.residual.Row<float>(row),
         .weight = static_cast<const float*>(op.weight.data),
         .bias = op.bias.empty() ? nullptr : static_cast<const float*>(op.bias.data),
         .out = out,
         .x_stride = op.x != nullptr ? op.x->float_stride() : 0,
         .residual_stride = op.residual.float_stride(),
         .out_stride = op.out.float_stride(),
         .num_rows = num_rows,
         .cols = op.residual.cols(),
         .eps = op.eps});
  });
}

void CpuOps::Run(const Clamp& op, Stream&) {
  ForEachRow(op.x,
             [&](int64_t row) { kernels_.clamp(op.x.Row<float>(row), op.x.cols(), op.limit); });
}

void CpuOps::Run(const Activate& op, Stream&) {
  WriteRows(op.out, 4 * op.out.cols(), [&](int64_t row, int64_t num_rows, float* out) {
    kernels_.gate({.activation = op.activation,
                   .gate = op.x.Row<float>(row),
                   .out = out,
                   .in_stride = op.x.float_stride(),
                   .out_stride = op.out.float_stride(),
                   .num_rows = num_rows,
                   .cols = op.out.cols()});
  });
}

void CpuOps::Run(const Convert& op, Stream&) {
  ForEachRow(op.x, [&](int64_t row) {
    if (op.out.dtype == DType::kF32) {
      std::memcpy(op.out.RowData(row), op.x.RowData(row), RowBytes(DType::kF32, op.x.cols()));
    } else {
      RoundActivations(isa_, op.x.Row<float>(row), 0, op.x.cols(), op.out, row);
    }
  });
}

void CpuOps::Run(const RouteTokens& op, Stream&) {
  const int64_t num_tokens = op.logits.rows();
  const auto* bias = op.bias.empty() ? nullptr : static_cast<const float*>(op.bias.data);
  const int64_t step = ItemRows(num_tokens, int64_t{16} * op.router.num_experts);
  pool_.ParallelFor(CeilDiv(num_tokens, step), [&](int64_t item, int) {
    for (int64_t t = item * step; t < std::min(num_tokens, (item + 1) * step); ++t) {
      ChooseExperts(op.router, op.logits.Row<float>(t), bias, op.experts.Row<int32_t>(t),
                    op.weights.Row<float>(t));
    }
  });
  GroupByExpert(op);
}

void CpuOps::Run(const GroupedLinear& op, Stream&) {
  CHECK(op.weights->members().size() <= products_.capacity());
  RunGroupedLinear(isa_, pool_, reinterpret_cast<float*>(tiles_.data()), op, products_);
}

void CpuOps::Run(const CombineExperts& op, Stream&) {
  const int64_t cols = op.out.cols();
  WriteRows(op.out, cols * (op.rows.cols() + 1), [&](int64_t row, int64_t num_rows, float* out) {
    for (int64_t t = row; t < row + num_rows; ++t, out += op.out.float_stride()) {
      CombineRow(op, t, out);
    }
  });
}

void CpuOps::Run(const HeadLinear& op, Stream&) {
  CHECK(op.weights->members().size() <= products_.capacity());
  RunHeadLinear(isa_, pool_, reinterpret_cast<float*>(tiles_.data()), op, products_);
  if (op.copied.cols == 0) return;
  const int64_t heads = op.weights->size();
  const int64_t width = op.out.cols() / std::max<int64_t>(1, heads);
  ForEachRow(op.out, [&](int64_t token) {
    for (int64_t h = 0; h < heads; ++h) {
      std::copy_n(op.copied.Of(token, h), op.copied.cols, op.out.Row<float>(token) + h * width);
    }
  });
}

void CpuOps::Run(const LatentAttention& op, Stream&) {
  AttendExpanded(isa_, pool_, reinterpret_cast<float*>(tiles_.data()), op);
}

void CpuOps::Run(const CausalConv& op, Stream&) { RunCausalConv(kernels_, pool_, op); }

void CpuOps::Run(const GatedDelta& op, Stream&) {
  ForEachRow(op.out, [&](int64_t token) { PrepareDelta(kernels_, op, token); });
  RunGatedDelta(kernels_, pool_, op);
}

void CpuOps::Run(const GateOutput& op, Stream&) {
  const bool has_norm = op.norm != nullptr;
  WriteRows(op.out, 4 * op.out.cols(), [&](int64_t row, int64_t num_rows, float* out) {
    kernels_.gate_output({.x = op.x.Row<float>(row),
                          .gate = op.gate.Row<float>(row),
                          .norm = has_norm ? static_cast<const float*>(op.norm->data) : nullptr,
                          .out = out,
                          .x_stride = op.x.float_stride(),
                          .gate_stride = op.gate.float_stride(),
                          .out_stride = op.out.float_stride(),
                          .num_rows = num_rows,
                          .cols = op.out.cols(),
                          .head_dim = has_norm ? op.norm->cols() : op.out.cols(),
                          .eps = op.norm_eps,
                          .silu = op.activation == OutputGate::kSilu});
  });
}

}  // namespace
}  // namespace cpu

int64_t CpuWeightBytes(const WeightSpec& spec) {
  int64_t bytes = 0;
  for (const auto& part : spec.parts) bytes += cpu::PanelWeight::Bytes(*part);
  return bytes;
}

Result<std::unique_ptr<Ops>> MakeCpuOps(const CpuOptions& options) {
  if (options.threads < 0 || options.threads > cpu::kMaxThreads) {
    return InvalidArgument("{} threads: must be between 1 and {}, or 0 for one per core",
                           options.threads, cpu::kMaxThreads);
  }
  ASSIGN_OR_RETURN(const cpu::IsaKernels isa, cpu::ChooseKernels(options.isa));
  std::unique_ptr<ThreadPool> own;
  if (options.pool == nullptr) {
    own = std::make_unique<ThreadPool>(
        options.threads == 0 ? ThreadPool::PhysicalCores() : options.threads, options.pin_threads);
  }
  ThreadPool& pool = own != nullptr ? *own : *options.pool;
  const int threads = pool.num_threads();
  ASSIGN_OR_RETURN(Buffer tiles, AllocateHostMemory(static_cast<size_t>(threads) *
                                                    cpu::kTileFloats * sizeof(float)));
  ASSIGN_OR_RETURN(Buffer outputs, AllocateHostMemory(static_cast<size_t>(threads) *
                                                      cpu::kItemOutputs * sizeof(float)));
  return std::unique_ptr<Ops>(std::make_unique<cpu::CpuOps>(
      isa, std::move(own), pool, std::move(tiles), std::move(outputs), options.communicator));
}

}  // namespace tokamak
