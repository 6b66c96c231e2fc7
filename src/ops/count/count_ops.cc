#include "ops/count/count_ops.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "ops/host/host_ops.h"

namespace tokamak {
namespace {

class CountedWeight final : public PackedWeight {
 public:
  CountedWeight(int64_t rows, int64_t cols, int64_t bytes)
      : PackedWeight(rows, cols, DType::kF32, bytes) {}
};

// Keys read and query-key pairs scored in one KV head's group, summed over the sequences.
struct AttentionWork {
  int64_t keys = 0;
  int64_t pairs = 0;
};

class CountPlan final : public AttentionPlan {
 public:
  explicit CountPlan(const AttentionShape& shape) : shape_(shape) {}

  void Fill(const AttentionBatch& batch, Stream&) override {
    work_ = {};
    for (int32_t s = 0; s < batch.num_seqs(); ++s) {
      const auto seq = static_cast<size_t>(s);
      const int64_t queries = batch.query_begin[seq + 1] - batch.query_begin[seq];
      const int64_t first = batch.kv_length[seq] - queries;  // position of the first query
      if (queries == 0) continue;
      const int64_t unseen =
          shape_.window > 0 ? std::max<int64_t>(0, first + 1 - shape_.window) : 0;
      work_.keys += batch.kv_length[seq] - unseen;
      for (int64_t position = first; position < batch.kv_length[seq]; ++position) {
        work_.pairs +=
            shape_.window > 0 ? std::min<int64_t>(position + 1, shape_.window) : position + 1;
      }
    }
  }

  const AttentionShape& shape() const { return shape_; }
  const AttentionWork& work() const { return work_; }

 private:
  AttentionShape shape_;
  AttentionWork work_;
};

class NullSampler final : public Sampler {
 public:
  void Admit(SlotId, const SamplingSpec&, std::span<const TokenId>, int32_t, Stream&) override {}
  void FillTokens(Tensor, std::span<const TokenFill>, Stream&) override {}
  void Sample(Tensor, std::span<const SampleRow>, std::span<const TokenMask>,
              std::span<SampleResult>, Stream&) override {}
  void Score(Tensor, std::span<const TokenId>, int32_t, std::span<SampleResult>, Stream&) override {
  }
};

int64_t Bytes(const Tensor& tensor) {
  return static_cast<int64_t>(RowBytes(tensor.dtype, tensor.cols())) * tensor.rows();
}

class CountOpsImpl final : public CountOps {
 public:
  std::string_view name() const override { return "count"; }

  const OpCounts& counts() const override { return counts_; }
  void Reset() override { counts_ = {}; }
  int64_t prepared_bytes() const override { return prepared_bytes_; }
  int64_t prepared_elements() const override { return prepared_elements_; }
  int64_t allocated_bytes(MemoryKind kind) const override {
    return kind == MemoryKind::kDevice ? device_bytes_ : pinned_bytes_;
  }

  Result<Buffer> Allocate(size_t bytes, MemoryKind kind) override {
    if (kind == MemoryKind::kHostPinned) {
      pinned_bytes_ += static_cast<int64_t>(bytes);
      return AllocateHostMemory(bytes);
    }
    device_bytes_ += static_cast<int64_t>(bytes);
    return Buffer(nullptr, bytes);
  }

  Result<std::unique_ptr<PackedWeight>> Prepare(const WeightSpec& spec) override {
    RETURN_IF_ERROR(CheckWeightSpec(spec));
    const int64_t cols = spec.parts.front()->shape().cols();
    int64_t bytes = 0;
    for (const auto& part : spec.parts) {
      bytes += static_cast<int64_t>(RowBytes(part->dtype(), cols)) * part->shape().rows();
    }
    prepared_bytes_ += bytes;
    prepared_elements_ += TotalRows(spec) * cols;
    return std::unique_ptr<PackedWeight>(
        std::make_unique<CountedWeight>(TotalRows(spec), cols, bytes));
  }
  Result<std::unique_ptr<AttentionPlan>> MakePlan(const AttentionShape& shape) override {
    return std::unique_ptr<AttentionPlan>(std::make_unique<CountPlan>(shape));
  }
  Result<std::unique_ptr<Sampler>> MakeSampler(const SamplerShape&) override {
    return std::unique_ptr<Sampler>(std::make_unique<NullSampler>());
  }

  std::unique_ptr<Stream> MakeStream() override { return std::make_unique<Stream>(); }
  Status Synchronize(Stream&) override { return Status(); }
  void CopyToDevice(void*, const void*, size_t, Stream&) override {}
  void CopyToHost(void*, const void*, size_t, Stream&) override {}

  void Run(const Embed& op, Stream&) override;
  void Run(const AddRmsNorm& op, Stream&) override;
  void Run(const Linear& op, Stream&) override;
  void Run(const GatedActivation& op, Stream&) override;
  void Run(const RopeAndStore& op, Stream&) override;
  void Run(const Attention& op, Stream&) override;
  void Run(const GatherRows& op, Stream&) override;
  void Run(const ScatterElements& op, Stream&) override;
  void Run(const CopyRanges& op, Stream&) override;
  bool has_experts() const override { return true; }
  void Run(const Convert& op, Stream&) override;
  void Run(const RouteTokens& op, Stream&) override;
  void Run(const GroupedLinear& op, Stream&) override;
  void Run(const CombineExperts& op, Stream&) override;

 private:
  void Add(OpKind kind, OpCount count) {
    count.calls = 1;
    counts_[kind] += count;
  }

  OpCounts counts_;
  int64_t prepared_bytes_ = 0;
  int64_t prepared_elements_ = 0;
  int64_t device_bytes_ = 0;
  int64_t pinned_bytes_ = 0;
};

void CountOpsImpl::Run(const Embed& op, Stream&) {
  const int64_t row_bytes = op.table->bytes() / std::max<int64_t>(1, op.table->rows());
  Add(OpKind::kEmbed,
      {.weight_bytes = op.out.rows() * row_bytes, .other_bytes = Bytes(op.ids) + Bytes(op.out)});
}

void CountOpsImpl::Run(const AddRmsNorm& op, Stream&) {
  // With x, the residual is written back.
  const int64_t added = op.x != nullptr ? Bytes(*op.x) + Bytes(op.residual) : 0;
  Add(OpKind::kAddRmsNorm,
      {.other_bytes = added + Bytes(op.residual) + Bytes(op.weight) + Bytes(op.out)});
}

void CountOpsImpl::Run(const Linear& op, Stream&) {
  if (op.x.rows() == 0) return Add(OpKind::kLinear, {});
  Add(OpKind::kLinear, {.weight_bytes = op.weight->bytes(),
                        .other_bytes = Bytes(op.x) + Bytes(op.bias) + Bytes(op.out),
                        .flops = 2 * op.x.rows() * op.weight->rows() * op.weight->cols()});
}

void CountOpsImpl::Run(const GatedActivation& op, Stream&) {
  Add(OpKind::kGatedActivation, {.other_bytes = Bytes(op.gate_up) + Bytes(op.out)});
}

void CountOpsImpl::Run(const RopeAndStore& op, Stream&) {
  const int64_t stored =
      2 * op.k.rows() * static_cast<int64_t>(RowBytes(op.cache.dtype, op.k.cols()));
  const int64_t rotated = op.rope != nullptr || op.q_norm != nullptr ? 2 * Bytes(op.q) : 0;
  Add(OpKind::kRopeAndStore,
      {.cache_bytes = stored,
       .other_bytes = rotated + Bytes(op.k) + Bytes(op.v) + Bytes(op.positions) + Bytes(op.slots)});
}

void CountOpsImpl::Run(const Attention& op, Stream&) {
  OpCount count;
  count.other_bytes = Bytes(op.q) + Bytes(op.out) + Bytes(op.output_lse);
  // A plan of another backend does not tell its batch.
  if (const auto* plan = dynamic_cast<const CountPlan*>(op.plan); plan != nullptr) {
    const AttentionShape& shape = plan->shape();
    count.cache_bytes = 2 * plan->work().keys * shape.num_kv_heads *
                        static_cast<int64_t>(RowBytes(op.cache.dtype, shape.head_dim));
    count.flops = 4 * plan->work().pairs * shape.num_heads * shape.head_dim;
  }
  Add(OpKind::kAttention, count);
}

void CountOpsImpl::Run(const GatherRows& op, Stream&) {
  Add(OpKind::kGatherRows, {.other_bytes = Bytes(op.rows) + 2 * Bytes(op.out)});
}

void CountOpsImpl::Run(const ScatterElements& op, Stream&) {
  Add(OpKind::kScatterElements, {.other_bytes = Bytes(op.indices) + 2 * Bytes(op.values)});
}

void CountOpsImpl::Run(const CopyRanges& op, Stream&) {
  Add(OpKind::kCopyRanges, {.cache_bytes = 2 * static_cast<int64_t>(op.ranges.size() * op.bytes)});
}

void CountOpsImpl::Run(const Convert& op, Stream&) {
  Add(OpKind::kConvert, {.other_bytes = Bytes(op.x) + Bytes(op.out)});
}

void CountOpsImpl::Run(const RouteTokens& op, Stream&) {
  Add(OpKind::kRouteTokens,
      {.other_bytes = Bytes(op.logits) + Bytes(op.bias) + Bytes(op.experts) + Bytes(op.weights) +
                      Bytes(op.tokens) + Bytes(op.rows) + Bytes(op.offsets)});
}

// As if every row chose its expert by chance: how many of them a step touches is not known before.
void CountOpsImpl::Run(const GroupedLinear& op, Stream&) {
  if (op.weights.empty()) return Add(OpKind::kGroupedLinear, {});
  const auto experts = static_cast<double>(op.weights.size());
  const PackedWeight& weight = *op.weights.front();
  const double touched =
      experts * (1 - std::pow(1 - 1 / experts, static_cast<double>(op.x.rows())));
  Add(OpKind::kGroupedLinear,
      {.weight_bytes = std::llround(touched * static_cast<double>(weight.bytes())),
       .other_bytes = Bytes(op.x) + Bytes(op.bias) + Bytes(op.offsets) + Bytes(op.out),
       .flops = 2 * op.x.rows() * weight.rows() * weight.cols()});
}

void CountOpsImpl::Run(const CombineExperts& op, Stream&) {
  Add(OpKind::kCombineExperts,
      {.other_bytes = Bytes(op.x) + Bytes(op.rows) + Bytes(op.weights) + Bytes(op.shared) +
                      Bytes(op.shared_gate) + Bytes(op.out)});
}

}  // namespace

OpCount& OpCount::operator+=(const OpCount& other) {
  calls += other.calls;
  weight_bytes += other.weight_bytes;
  cache_bytes += other.cache_bytes;
  other_bytes += other.other_bytes;
  flops += other.flops;
  return *this;
}

OpCount OpCounts::Total() const {
  OpCount total;
  for (const OpCount& count : of_kind) total += count;
  return total;
}

std::string_view Name(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbed:
      return "embed";
    case OpKind::kAddRmsNorm:
      return "add_rms_norm";
    case OpKind::kLinear:
      return "linear";
    case OpKind::kGatedActivation:
      return "gated_activation";
    case OpKind::kRopeAndStore:
      return "rope_and_store";
    case OpKind::kAttention:
      return "attention";
    case OpKind::kGatherRows:
      return "gather_rows";
    case OpKind::kScatterElements:
      return "scatter_elements";
    case OpKind::kCopyRanges:
      return "copy_ranges";
    case OpKind::kConvert:
      return "convert";
    case OpKind::kRouteTokens:
      return "route_tokens";
    case OpKind::kGroupedLinear:
      return "grouped_linear";
    case OpKind::kCombineExperts:
      return "combine_experts";
  }
  return "";
}

std::unique_ptr<CountOps> MakeCountOps() { return std::make_unique<CountOpsImpl>(); }

}  // namespace tokamak
