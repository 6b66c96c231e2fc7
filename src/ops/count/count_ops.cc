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
  CountedWeight(int64_t rows, int64_t cols, DType activation, int64_t bytes, DType output)
      : PackedWeight(rows, cols, activation, bytes, output) {}
};

// Keys read and query-key pairs scored per KV head, over all sequences.
struct AttentionWork {
  int64_t keys = 0;
  int64_t pairs = 0;
};

// Bytes of one position of one layer in the cache.
int64_t CacheBytes(const KvLayerView& cache) {
  const int64_t elements =
      cache.values_in_keys ? cache.head_dim : cache.head_dim + cache.ValueDim();
  return cache.num_kv_heads * static_cast<int64_t>(RowBytes(cache.dtype, elements));
}

class CountPlan final : public AttentionPlan {
 public:
  explicit CountPlan(const AttentionShape& shape) : shape_(shape) {}

  void Fill(const AttentionBatch& batch, Stream&) override {
    work_ = expanded_ = {};
    for (int32_t s = 0; s < batch.num_seqs(); ++s) {
      const auto seq = static_cast<size_t>(s);
      const int64_t queries = batch.query_start_loc[seq + 1] - batch.query_start_loc[seq];
      const int64_t first = batch.seq_lens[seq] - queries;  // position of the first query
      if (queries == 0) continue;
      const bool expand = shape_.expansion.Takes(static_cast<int32_t>(queries));
      AttentionWork& work = expand ? expanded_ : work_;
      const int64_t unseen =
          shape_.window > 0 ? std::max<int64_t>(0, first + 1 - shape_.window) : 0;
      work.keys += batch.seq_lens[seq] - unseen;
      ForEachPart(shape_, batch, s, [&](const QueryPart& part) {
        for (int64_t query = part.begin; query < part.end; ++query) {
          const int64_t position = first + query - batch.query_start_loc[seq];
          const int64_t unseen =
              shape_.window > 0 ? std::max<int64_t>(0, position + 1 - shape_.window) : 0;
          work.pairs += (part.end_key > 0 ? part.end_key : position + 1) - unseen;
        }
      });
    }
  }

  const AttentionShape& shape() const { return shape_; }
  const AttentionWork& work() const { return work_; }
  const AttentionWork& expanded() const { return expanded_; }  // for LatentAttention

 private:
  AttentionShape shape_;
  AttentionWork work_;
  AttentionWork expanded_;
};

class NullSampler final : public Sampler {
 public:
  void Admit(SequenceSlotId, const SamplingParams&, int32_t, std::span<const TokenId>, int32_t,
             Stream&) override {}
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
  CountOpsImpl(WeightSizer sizer, const CountedBackend& backend)
      : sizer_(sizer), backend_(backend) {}

  std::string_view name() const override { return backend_.name; }
  Capabilities capabilities() const override { return backend_.capabilities; }
  RankInfo rank() const override { return backend_.rank; }

  const OpCounts& counts() const override { return counts_; }
  void Reset() override { counts_ = {}; }
  int64_t packed_bytes() const override { return packed_bytes_; }
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

  Result<std::unique_ptr<PackedWeight>> PackWeight(const WeightSpec& spec) override {
    RETURN_IF_ERROR(CheckWeightSpec(spec));
    const int64_t cols = spec.parts.front()->shape().cols();
    const int64_t bytes = sizer_(spec);
    packed_bytes_ += bytes;
    const DType activation = backend_.activation ? backend_.activation(spec) : DType::kF32;
    return std::unique_ptr<PackedWeight>(std::make_unique<CountedWeight>(
        TotalRows(spec), cols, activation, bytes, LinearOutput(spec, backend_.inner_type)));
  }
  Result<std::unique_ptr<AttentionPlan>> MakeAttentionPlan(const AttentionShape& shape) override {
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
  void Run(const CopyRows& op, Stream&) override;
  void Run(const ScatterElements& op, Stream&) override;
  void Run(const CopyRanges& op, Stream&) override;
  void Run(const AllReduce& op, Stream&) override;
  void Run(const AllGather& op, Stream&) override;
  void Run(const AddResidual& op, Stream&) override;
  void Run(const Softcap& op, Stream&) override;
  void Run(const AddLayerNorm& op, Stream&) override;
  void Run(const Clamp& op, Stream&) override;
  void Run(const Activate& op, Stream&) override;
  void Run(const Convert& op, Stream&) override;
  void Run(const RouteTokens& op, Stream&) override;
  void Run(const GroupedLinear& op, Stream&) override;
  void Run(const CombineExperts& op, Stream&) override;
  void Run(const HeadLinear& op, Stream&) override;
  void Run(const LatentAttention& op, Stream&) override;
  void Run(const CausalConv& op, Stream&) override;
  void Run(const GatedDelta& op, Stream&) override;
  void Run(const GateOutput& op, Stream&) override;

 private:
  void Add(OpKind kind, OpCount count) {
    count.calls = 1;
    counts_[kind] += count;
  }

  const WeightSizer sizer_;
  const CountedBackend backend_;
  OpCounts counts_;
  int64_t packed_bytes_ = 0;
  int64_t device_bytes_ = 0;
  int64_t pinned_bytes_ = 0;
};

void CountOpsImpl::Run(const Embed& op, Stream&) {
  const int64_t row_bytes = op.table->bytes() / std::max<int64_t>(1, op.table->rows());
  Add(OpKind::kEmbed,
      {.weight_bytes = op.out.rows() * row_bytes, .other_bytes = Bytes(op.ids) + Bytes(op.out)});
}

void CountOpsImpl::Run(const AddRmsNorm& op, Stream&) {
  // If x is given, the residual is also written.
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
  const int64_t stored = op.k.rows() * CacheBytes(op.cache);
  const int64_t rotated = op.rope != nullptr || op.q_norm != nullptr ? 2 * Bytes(op.q) : 0;
  Add(OpKind::kRopeAndStore, {.cache_bytes = stored,
                              .other_bytes = rotated + Bytes(op.k) + Bytes(op.v) +
                                             Bytes(op.positions) + Bytes(op.slot_mapping)});
}

void CountOpsImpl::Run(const Attention& op, Stream&) {
  OpCount count;
  count.other_bytes = Bytes(op.q) + Bytes(op.out) + Bytes(op.output_lse);
  // A plan of another backend does not expose its batch.
  if (const auto* plan = dynamic_cast<const CountPlan*>(op.plan); plan != nullptr) {
    const AttentionShape& shape = plan->shape();
    count.cache_bytes = plan->work().keys * CacheBytes(op.cache);
    count.flops = 2 * plan->work().pairs * shape.num_heads * (shape.head_dim + shape.ValueDim());
  }
  Add(OpKind::kAttention, count);
}

void CountOpsImpl::Run(const GatherRows& op, Stream&) {
  Add(OpKind::kGatherRows, {.other_bytes = Bytes(op.rows) + 2 * Bytes(op.out)});
}

void CountOpsImpl::Run(const CopyRows& op, Stream&) {
  const auto row_bytes = static_cast<int64_t>(RowBytes(op.source.dtype, op.source.cols()));
  Add(OpKind::kCopyRows,
      {.other_bytes = Bytes(op.from) + Bytes(op.to) + 2 * op.from.cols() * row_bytes});
}

void CountOpsImpl::Run(const ScatterElements& op, Stream&) {
  Add(OpKind::kScatterElements, {.other_bytes = Bytes(op.indices) + 2 * Bytes(op.values)});
}

void CountOpsImpl::Run(const CopyRanges& op, Stream&) {
  Add(OpKind::kCopyRanges, {.cache_bytes = 2 * static_cast<int64_t>(op.ranges.size() * op.bytes)});
}

void CountOpsImpl::Run(const AllReduce& op, Stream&) {
  Add(OpKind::kAllReduce, {.other_bytes = 2 * Bytes(op.x)});
}

void CountOpsImpl::Run(const AllGather& op, Stream&) {
  Add(OpKind::kAllGather, {.other_bytes = Bytes(op.x) + Bytes(op.out)});
}

void CountOpsImpl::Run(const AddResidual& op, Stream&) {
  Add(OpKind::kAddResidual, {.other_bytes = Bytes(op.x) + 2 * Bytes(op.residual)});
}

void CountOpsImpl::Run(const Softcap& op, Stream&) {
  Add(OpKind::kSoftcap, {.other_bytes = 2 * Bytes(op.x)});
}

void CountOpsImpl::Run(const AddLayerNorm& op, Stream&) {
  const int64_t added = op.x != nullptr ? Bytes(*op.x) + Bytes(op.residual) : 0;
  Add(OpKind::kAddLayerNorm, {.other_bytes = added + Bytes(op.residual) + Bytes(op.weight) +
                                             Bytes(op.bias) + Bytes(op.out)});
}

void CountOpsImpl::Run(const Clamp& op, Stream&) {
  Add(OpKind::kClamp, {.other_bytes = 2 * Bytes(op.x)});
}

void CountOpsImpl::Run(const Activate& op, Stream&) {
  Add(OpKind::kActivate, {.other_bytes = Bytes(op.x) + Bytes(op.out)});
}

void CountOpsImpl::Run(const Convert& op, Stream&) {
  Add(OpKind::kConvert, {.other_bytes = Bytes(op.x) + Bytes(op.out)});
}

void CountOpsImpl::Run(const RouteTokens& op, Stream&) {
  Add(OpKind::kRouteTokens,
      {.other_bytes = Bytes(op.logits) + Bytes(op.bias) + Bytes(op.experts) + Bytes(op.weights) +
                      Bytes(op.tokens) + Bytes(op.rows) + Bytes(op.offsets)});
}

// The number of experts that a step touches is unknown. This counts as if every row chose at
// random.
void CountOpsImpl::Run(const GroupedLinear& op, Stream&) {
  const PackedStack& weights = *op.weights;
  const auto experts = static_cast<double>(weights.size());
  const double touched =
      experts * (1 - std::pow(1 - 1 / experts, static_cast<double>(op.x.rows())));
  Add(OpKind::kGroupedLinear,
      {.weight_bytes = std::llround(touched * static_cast<double>(weights.bytes()) / experts),
       .other_bytes = Bytes(op.x) + Bytes(op.bias) + Bytes(op.offsets) + Bytes(op.out),
       .flops = 2 * op.x.rows() * weights.rows() * weights.cols()});
}

void CountOpsImpl::Run(const CombineExperts& op, Stream&) {
  Add(OpKind::kCombineExperts,
      {.other_bytes = Bytes(op.x) + Bytes(op.rows) + Bytes(op.weights) + Bytes(op.shared) +
                      Bytes(op.shared_gate) + Bytes(op.out)});
}

void CountOpsImpl::Run(const HeadLinear& op, Stream&) {
  OpCount count;
  const int64_t num_tokens = op.out.rows();
  const int64_t heads = op.weights->size();
  count.weight_bytes = op.weights->bytes();
  count.flops = 2 * num_tokens * heads * op.weights->rows() * op.weights->cols();
  const int64_t read = (op.x.step == 0 ? 1 : heads) * op.x.cols + heads * op.copied.cols;
  count.other_bytes =
      num_tokens * static_cast<int64_t>(RowBytes(op.x.tensor.dtype, read)) + Bytes(op.out);
  Add(OpKind::kHeadLinear, count);
}

// Keys are decompressed once for all queries of a sequence.
void CountOpsImpl::Run(const LatentAttention& op, Stream&) {
  OpCount count;
  count.other_bytes = Bytes(op.q) + Bytes(op.out);
  if (const auto* plan = dynamic_cast<const CountPlan*>(op.plan); plan != nullptr) {
    const AttentionShape& shape = plan->shape();
    const AttentionWork& work = plan->expanded();
    const int64_t key_dim = shape.head_dim - shape.ValueDim() + shape.expansion.nope_dim;
    count.cache_bytes = work.keys * CacheBytes(op.cache);
    count.flops = 2 * work.pairs * shape.num_heads * (key_dim + shape.expansion.value_dim);
    for (const PackedStack* weights : {op.w_uk, op.w_uv}) {
      if (work.keys > 0) count.weight_bytes += weights->bytes();
      count.flops += 2 * work.keys * weights->size() * weights->rows() * weights->cols();
    }
  }
  Add(OpKind::kLatentAttention, count);
}

void CountOpsImpl::Run(const CausalConv& op, Stream&) {
  const int64_t state_bytes = op.state.spec.ConvElements() * int64_t{sizeof(float)};
  Add(OpKind::kCausalConv, {.cache_bytes = 2 * op.batch.num_seqs() * state_bytes,
                            .other_bytes = Bytes(op.x) + Bytes(op.weight) + Bytes(op.out)});
}

// A token decays S, multiplies it by k and by q, and adds to it: six operations per element.
void CountOpsImpl::Run(const GatedDelta& op, Stream&) {
  const int64_t elements = op.state.spec.MatrixElements();
  Add(OpKind::kGatedDelta,
      {.cache_bytes = 2 * op.batch.num_seqs() * elements * int64_t{sizeof(float)},
       .other_bytes = Bytes(op.q) + Bytes(op.k) + Bytes(op.v) + Bytes(op.a) + Bytes(op.b) +
                      Bytes(op.rate) + Bytes(op.bias) + Bytes(op.out),
       .flops = 6 * op.out.rows() * elements});
}

void CountOpsImpl::Run(const GateOutput& op, Stream&) {
  Add(OpKind::kGateOutput, {.other_bytes = Bytes(op.x) + Bytes(op.gate) + Bytes(op.out)});
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
    case OpKind::kCopyRows:
      return "copy_rows";
    case OpKind::kScatterElements:
      return "scatter_elements";
    case OpKind::kCopyRanges:
      return "copy_ranges";
    case OpKind::kAllReduce:
      return "all_reduce";
    case OpKind::kAllGather:
      return "all_gather";
    case OpKind::kAddResidual:
      return "add_residual";
    case OpKind::kSoftcap:
      return "softcap";
    case OpKind::kAddLayerNorm:
      return "add_layer_norm";
    case OpKind::kClamp:
      return "clamp";
    case OpKind::kActivate:
      return "activate";
    case OpKind::kConvert:
      return "convert";
    case OpKind::kRouteTokens:
      return "route_tokens";
    case OpKind::kGroupedLinear:
      return "grouped_linear";
    case OpKind::kCombineExperts:
      return "combine_experts";
    case OpKind::kHeadLinear:
      return "head_linear";
    case OpKind::kLatentAttention:
      return "latent_attention";
    case OpKind::kCausalConv:
      return "causal_conv";
    case OpKind::kGatedDelta:
      return "gated_delta";
    case OpKind::kGateOutput:
      return "gate_output";
  }
  return "";
}

int64_t StoredBytes(const WeightSpec& spec) {
  int64_t bytes = 0;
  for (const auto& part : spec.parts) {
    const Shape& shape = part->shape();
    bytes += static_cast<int64_t>(RowBytes(part->dtype(), shape.cols())) * shape.rows();
  }
  return bytes;
}

std::unique_ptr<CountOps> MakeCountOps(WeightSizer sizer, const CountedBackend& backend) {
  return std::make_unique<CountOpsImpl>(sizer, backend);
}

}  // namespace tokamak
