#include "ops/reference/reference_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "ops/host/host_ops.h"
#include "ops/host/route.h"
#include "ops/reference/gated_delta.h"
#include "ops/sampling/host_sampler.h"
#include "quant/half.h"
#include "quant/quantize.h"

namespace tokamak {
namespace {

// All elements as f32, row by row.
class ReferenceWeight final : public PackedWeight {
 public:
  ReferenceWeight(int64_t rows, int64_t cols, std::vector<float> values)
      : PackedWeight(rows, cols, DType::kF32, static_cast<int64_t>(values.size() * sizeof(float))),
        values_(std::move(values)) {}

  const float* Row(int64_t row) const { return values_.data() + row * cols(); }

 private:
  std::vector<float> values_;
};

const ReferenceWeight& Unwrap(const PackedWeight* weight) {
  return *static_cast<const ReferenceWeight*>(weight);
}

const ReferenceWeight& Member(const PackedStack& stack, int64_t index) {
  return Unwrap(stack.members()[static_cast<size_t>(index)].get());
}

class ReferencePlan final : public AttentionPlan {
 public:
  explicit ReferencePlan(const AttentionShape& shape) : shape_(shape) {}
  void Fill(const AttentionBatch& batch, Stream&) override { batch_ = batch; }

  const AttentionShape& shape() const { return shape_; }
  const AttentionBatch& batch() const { return batch_; }

 private:
  AttentionShape shape_;
  AttentionBatch batch_;
};

// Byte offset of row [kv_head, position in the block] in a block.
int64_t KeyOffset(const KvLayerView& cache, int64_t kv_head, int64_t position) {
  return cache.k_offset + (kv_head * cache.block_size + position) *
                              static_cast<int64_t>(RowBytes(cache.dtype, cache.head_dim));
}
int64_t ValueOffset(const KvLayerView& cache, int64_t kv_head, int64_t position) {
  const int64_t stride = cache.values_in_keys ? cache.head_dim : cache.ValueDim();
  return cache.v_offset + (kv_head * cache.block_size + position) *
                              static_cast<int64_t>(RowBytes(cache.dtype, stride));
}

std::vector<float> ReadRow(const KvLayerView& cache, const std::byte* row, int64_t size) {
  std::vector<float> values(static_cast<size_t>(size));
  DequantizeRow(cache.dtype, row, size, values.data());
  return values;
}

// One sequence's keys and values, each read once, on first use.
class KeyBlocks {
 public:
  KeyBlocks(const KvLayerView& cache, const AttentionBatch& batch, int64_t sequence)
      : cache_(cache),
        table_(batch.block_tables.Row<int32_t>(
            static_cast<const int32_t*>(batch.table_rows.data)[sequence])),
        keys_(static_cast<size_t>(batch.seq_lens[static_cast<size_t>(sequence)]) *
              static_cast<size_t>(cache.num_kv_heads)),
        values_(keys_.size()) {}

  const std::vector<float>& Key(int64_t position, int64_t kv_head) {
    std::vector<float>& key = keys_[Index(position, kv_head)];
    if (key.empty()) {
      const int64_t offset = KeyOffset(cache_, kv_head, position % cache_.block_size);
      key = ReadRow(cache_, Block(position) + offset, cache_.head_dim);
    }
    return key;
  }
  const std::vector<float>& Value(int64_t position, int64_t kv_head) {
    std::vector<float>& value = values_[Index(position, kv_head)];
    if (value.empty()) {
      const int64_t offset = ValueOffset(cache_, kv_head, position % cache_.block_size);
      value = ReadRow(cache_, Block(position) + offset, cache_.ValueDim());
    }
    return value;
  }

 private:
  const std::byte* Block(int64_t position) const {
    const int32_t block = table_[position / cache_.block_size];
    CHECK(block >= 0);
    return cache_.base + block * cache_.block_stride;
  }

  size_t Index(int64_t position, int64_t kv_head) const {
    return static_cast<size_t>(position * cache_.num_kv_heads + kv_head);
  }

  const KvLayerView& cache_;
  const int32_t* table_;
  std::vector<std::vector<float>> keys_;
  std::vector<std::vector<float>> values_;
};

void Multiply(const ReferenceWeight& weight, const float* x, float* out) {
  for (int64_t n = 0; n < weight.rows(); ++n) {
    double sum = 0;
    for (int64_t k = 0; k < weight.cols(); ++k) sum += static_cast<double>(x[k]) * weight.Row(n)[k];
    out[n] = static_cast<float>(sum);
  }
}

// One query's attention to the first num_keys of `keys` [..., key_dim] and `values`.
void Attend(const float* q, int64_t key_dim, const std::vector<float>& keys,
            const std::vector<float>& values, int64_t value_dim, int64_t num_keys, double scale,
            float* out) {
  std::vector<double> weights;
  double highest = -INFINITY, sum = 0;
  for (int64_t key = 0; key < num_keys; ++key) {
    double score = 0;
    for (int64_t i = 0; i < key_dim; ++i) {
      score += static_cast<double>(q[i]) * keys[static_cast<size_t>(key * key_dim + i)];
    }
    weights.push_back(scale * score);
    highest = std::max(highest, weights.back());
  }
  for (double& weight : weights) sum += weight = std::exp(weight - highest);
  for (int64_t i = 0; i < value_dim; ++i) {
    double value = 0;
    for (int64_t key = 0; key < num_keys; ++key) {
      value += weights[static_cast<size_t>(key)] * values[static_cast<size_t>(key * value_dim + i)];
    }
    out[i] = static_cast<float>(value / sum);
  }
}

double Activated(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1.0 + std::exp(-x));
    case Activation::kGeluTanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kGelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::kQuickGelu:
      return x / (1.0 + std::exp(-1.702 * x));
    case Activation::kClampedSwiglu:
      break;  // takes two inputs
  }
  CHECK_MSG(false, "this activation needs a gate");
}

double Gated(const GatedActivation& op, double gate, double up) {
  if (op.activation != Activation::kClampedSwiglu) return Activated(op.activation, gate) * up;
  // Comparisons with NaN are false, so NaN stays.
  const double g = gate > op.limit ? op.limit : gate;
  const double u = up > op.limit ? op.limit : up < -op.limit ? -op.limit : up;
  return g / (1.0 + std::exp(-op.alpha * g)) * (u + 1);
}

// head = head / rms(head) · weight.
void NormalizeHead(double* head, const float* weight, int head_dim, double eps) {
  double squares = 0;
  for (int i = 0; i < head_dim; ++i) squares += head[i] * head[i];
  const double rms = std::sqrt(squares / head_dim + eps);
  for (int i = 0; i < head_dim; ++i) head[i] = head[i] / rms * weight[i];
}

void RotateHead(double* head, const RopeTable& rope, int64_t position) {
  const int half = rope.rotary_dim / 2;
  const float* cosines = rope.cos_sin.Row<float>(position);
  const float* sines = cosines + half;
  for (int i = 0; i < half; ++i) {
    const bool split = rope.style == RopeStyle::kHalfSplit;
    double& a = head[split ? i : 2 * i];
    double& b = head[split ? i + half : 2 * i + 1];
    const double turned_a = a * cosines[i] - b * sines[i];
    const double turned_b = a * sines[i] + b * cosines[i];
    a = turned_a;
    b = turned_b;
  }
}

class ReferenceOps final : public HostOps {
 public:
  using HostOps::HostOps;
  std::string_view name() const override { return "reference"; }
  Capabilities capabilities() const override {
    return Capabilities::All() - Capability::kLatentScratch;
  }
  Result<std::unique_ptr<PackedWeight>> PackWeight(const WeightSpec& spec) override;
  Result<std::unique_ptr<AttentionPlan>> MakeAttentionPlan(const AttentionShape& shape) override {
    return std::unique_ptr<AttentionPlan>(std::make_unique<ReferencePlan>(shape));
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
  void Run(const CausalConv& op, Stream&) override { RunReference(op); }
  void Run(const GatedDelta& op, Stream&) override { RunReference(op); }
  void Run(const GateOutput& op, Stream&) override { RunReference(op); }

 private:
  static void AttendOneHead(const Attention& op, int64_t sequence, const QueryPart& part,
                            int64_t token, int64_t head, KeyBlocks& blocks);

  ThreadPool pool_{1};  // for the sampler
};

Result<std::unique_ptr<PackedWeight>> ReferenceOps::PackWeight(const WeightSpec& spec) {
  RETURN_IF_ERROR(CheckWeightSpec(spec));
  const int64_t cols = spec.parts.front()->shape().cols();
  const int64_t rows = TotalRows(spec);
  std::vector<float> values(static_cast<size_t>(rows * cols));
  float* destination = values.data();
  for (const auto& part : spec.parts) {
    std::vector<std::byte> row(RowBytes(part->dtype(), cols));
    for (int64_t i = 0; i < part->shape().rows(); ++i) {
      RETURN_IF_ERROR(part->ReadRows(i, i + 1, row.data()));
      DequantizeRow(part->dtype(), row.data(), cols, destination);
      destination += cols;
    }
  }
  return std::unique_ptr<PackedWeight>(
      std::make_unique<ReferenceWeight>(rows, cols, std::move(values)));
}

void ReferenceOps::Run(const Embed& op, Stream&) {
  const ReferenceWeight& table = Unwrap(op.table);
  const auto* ids = static_cast<const int32_t*>(op.ids.data);
  for (int64_t t = 0; t < op.out.rows(); ++t) {
    const int64_t row = op.Row(ids[t]);
    for (int64_t i = 0; i < table.cols(); ++i) {
      op.out.Row<float>(t)[i] = row < 0 ? 0.0f : op.scale * table.Row(row)[i];
    }
  }
}

void ReferenceOps::Run(const AddRmsNorm& op, Stream&) {
  const int64_t hidden = op.residual.cols();
  const auto* weight = static_cast<const float*>(op.weight.data);
  for (int64_t t = 0; t < op.residual.rows(); ++t) {
    float* residual = op.residual.Row<float>(t);
    double squares = 0;
    for (int64_t i = 0; i < hidden; ++i) {
      if (op.x != nullptr) residual[i] += op.x->Row<float>(t)[i];
      squares += static_cast<double>(residual[i]) * residual[i];
    }
    const double rms = std::sqrt(squares / static_cast<double>(hidden) + op.eps);
    for (int64_t i = 0; i < hidden; ++i) {
      op.out.Row<float>(t)[i] = static_cast<float>(residual[i] / rms * weight[i]);
    }
  }
}

void ReferenceOps::Run(const Linear& op, Stream&) {
  const ReferenceWeight& weight = Unwrap(op.weight);
  for (int64_t t = 0; t < op.x.rows(); ++t) {
    const float* x = op.x.Row<float>(t);
    for (int64_t n = 0; n < weight.rows(); ++n) {
      double sum = 0;
      for (int64_t k = 0; k < weight.cols(); ++k) {
        sum += static_cast<double>(x[k]) * weight.Row(n)[k];
      }
      if (!op.bias.empty()) sum += static_cast<const float*>(op.bias.data)[n];
      op.out.Row<float>(t)[n] = static_cast<float>(sum);
    }
  }
}

void ReferenceOps::Run(const GatedActivation& op, Stream&) {
  const int64_t width = op.out.cols();
  for (int64_t t = 0; t < op.out.rows(); ++t) {
    const float* gate = op.gate_up.Row<float>(t);
    const float* up = gate + width;
    for (int64_t i = 0; i < width; ++i) {
      op.out.Row<float>(t)[i] = static_cast<float>(Gated(op, gate[i], up[i]));
    }
  }
}

void ReferenceOps::Run(const RopeAndStore& op, Stream&) {
  const KvLayerView& cache = op.cache;
  const int head_dim = cache.head_dim;
  const auto* positions = static_cast<const int32_t*>(op.positions.data);
  const auto* slot_mapping = static_cast<const int64_t*>(op.slot_mapping.data);
  const int q_dim = op.QueryDim();
  std::vector<double> head;
  const auto rotate = [&](const float* source, int dim, const Tensor* norm, int64_t position) {
    head.assign(source, source + dim);
    if (norm != nullptr) {
      NormalizeHead(head.data(), static_cast<const float*>(norm->data), dim, op.norm_eps);
    }
    if (op.rope != nullptr) RotateHead(head.data(), *op.rope, position);
  };
  for (int64_t t = 0; t < op.q.rows(); ++t) {
    for (int64_t h = 0; h < op.q.cols() / q_dim; ++h) {
      float* q = op.q.Row<float>(t) + h * q_dim;
      rotate(q, q_dim, op.q_norm, positions[t]);
      for (int i = 0; i < q_dim; ++i) q[i] = static_cast<float>(head[static_cast<size_t>(i)]);
    }
    if (slot_mapping[t] < 0) continue;
    std::byte* block = cache.base + slot_mapping[t] / cache.block_size * cache.block_stride;
    for (int64_t h = 0; h < cache.num_kv_heads; ++h) {
      rotate(op.k.Row<float>(t) + h * head_dim, head_dim, op.k_norm, positions[t]);
      const int64_t position = slot_mapping[t] % cache.block_size;
      const std::vector<float> key(head.begin(), head.end());
      QuantizeRow(cache.dtype, key.data(), head_dim, block + KeyOffset(cache, h, position));
      if (cache.values_in_keys) continue;
      QuantizeRow(cache.dtype, op.v.Row<float>(t) + h * cache.ValueDim(), cache.ValueDim(),
                  block + ValueOffset(cache, h, position));
    }
  }
}

void ReferenceOps::AttendOneHead(const Attention& op, int64_t sequence, const QueryPart& part,
                                 int64_t token, int64_t head, KeyBlocks& blocks) {
  const auto& plan = static_cast<const ReferencePlan&>(*op.plan);
  const AttentionBatch& batch = plan.batch();
  const KvLayerView& cache = op.cache;
  const int head_dim = cache.head_dim;
  const int64_t kv_head = head / (plan.shape().num_heads / cache.num_kv_heads);
  const auto seq = static_cast<size_t>(sequence);
  const int64_t position = batch.seq_lens[seq] - (batch.query_start_loc[seq + 1] - token);
  const int64_t last = part.end_key > 0 ? part.end_key - 1 : position;
  const int64_t first =
      plan.shape().window > 0 ? std::max<int64_t>(0, position + 1 - plan.shape().window) : 0;
  const float* q = op.q.Row<float>(token) + head * head_dim;
  std::vector<double> scores;
  double highest = -INFINITY;
  for (int64_t key = first; key <= last; ++key) {
    const std::vector<float>& k = blocks.Key(key, kv_head);
    double score = 0;
    for (int i = 0; i < head_dim; ++i) {
      score += static_cast<double>(q[i]) * k[static_cast<size_t>(i)];
    }
    score *= op.scale;
    if (op.softcap > 0) score = op.softcap * std::tanh(score / op.softcap);
    if (!op.slopes.empty()) {
      score +=
          static_cast<const float*>(op.slopes.data)[head] * static_cast<double>(key - position);
    }
    scores.push_back(score);
    highest = std::max(highest, scores.back());
  }
  double sum = 0;
  if (!op.sinks.empty()) {
    const double sink = static_cast<const float*>(op.sinks.data)[head];
    highest = std::max(highest, sink);
    sum = std::exp(sink - highest);
  }
  for (double& score : scores) sum += score = std::exp(score - highest);
  std::vector<double> value(static_cast<size_t>(cache.ValueDim()));
  for (int64_t key = first; key <= last; ++key) {
    const std::vector<float>& v = blocks.Value(key, kv_head);
    const double weight = scores[static_cast<size_t>(key - first)] / sum;
    for (size_t i = 0; i < value.size(); ++i) {
      value[i] += weight * v[i];
    }
  }
  std::copy(value.begin(), value.end(), op.out.Row<float>(token) + head * cache.ValueDim());
  if (!op.output_lse.empty()) {
    op.output_lse.Row<float>(token)[head] = static_cast<float>(highest + std::log(sum));
  }
}

void ReferenceOps::Run(const Attention& op, Stream&) {
  const auto& plan = static_cast<const ReferencePlan&>(*op.plan);
  const AttentionBatch& batch = plan.batch();
  for (int32_t s = 0; s < batch.num_seqs(); ++s) {
    if (batch.seq_lens[static_cast<size_t>(s)] == 0) continue;  // padding
    const int32_t begin = batch.query_start_loc[static_cast<size_t>(s)];
    const int32_t end = batch.query_start_loc[static_cast<size_t>(s) + 1];
    if (plan.shape().expansion.Takes(end - begin)) continue;
    KeyBlocks blocks(op.cache, batch, s);
    ForEachPart(plan.shape(), batch, s, [&](const QueryPart& part) {
      for (int64_t t = part.begin; t < part.end; ++t) {
        for (int64_t h = 0; h < plan.shape().num_heads; ++h) {
          AttendOneHead(op, s, part, t, h, blocks);
        }
      }
    });
  }
}

void ReferenceOps::Run(const HeadLinear& op, Stream&) {
  for (int64_t t = 0; t < op.out.rows(); ++t) {
    float* out = op.out.Row<float>(t);
    for (int64_t head = 0; head < op.weights->size(); ++head) {
      out = std::copy_n(op.copied.cols == 0 ? nullptr : op.copied.Of(t, head), op.copied.cols, out);
      Multiply(Member(*op.weights, head), op.x.Of(t, head), out);
      out += op.weights->rows();
    }
  }
}

// Decompresses all keys and values of a sequence, head by head.
void ReferenceOps::Run(const LatentAttention& op, Stream&) {
  const auto& plan = static_cast<const ReferencePlan&>(*op.plan);
  const AttentionBatch& batch = plan.batch();
  const KvLayerView& cache = op.cache;
  const LatentExpansion& expansion = plan.shape().expansion;
  const int32_t rotated = cache.head_dim - cache.ValueDim();
  const int32_t key_dim = rotated + expansion.nope_dim;
  for (int32_t s = 0; s < batch.num_seqs(); ++s) {
    const int32_t length = batch.seq_lens[static_cast<size_t>(s)];
    const int32_t begin = batch.query_start_loc[static_cast<size_t>(s)];
    const int32_t end = batch.query_start_loc[static_cast<size_t>(s) + 1];
    if (length == 0 || !expansion.Takes(end - begin)) continue;
    KeyBlocks latents(cache, batch, s);
    for (int64_t head = 0; head < op.w_uk->size(); ++head) {
      std::vector<float> keys, values;
      for (int32_t key = 0; key < length; ++key) {
        const std::vector<float>& entry = latents.Key(key, 0);
        keys.insert(keys.end(), entry.begin(), entry.begin() + rotated);
        keys.resize(keys.size() + static_cast<size_t>(expansion.nope_dim));
        values.resize(values.size() + static_cast<size_t>(expansion.value_dim));
        Multiply(Member(*op.w_uk, head), entry.data() + rotated,
                 keys.data() + keys.size() - expansion.nope_dim);
        Multiply(Member(*op.w_uv, head), entry.data() + rotated,
                 values.data() + values.size() - expansion.value_dim);
      }
      for (int32_t t = begin; t < end; ++t) {
        Attend(op.q.Row<float>(t) + head * key_dim, key_dim, keys, values, expansion.value_dim,
               length - (end - t) + 1, op.scale, op.out.Row<float>(t) + head * expansion.value_dim);
      }
    }
  }
}

void ReferenceOps::Run(const GatherRows& op, Stream&) {
  const auto* rows = static_cast<const int32_t*>(op.rows.data);
  for (int64_t i = 0; i < op.out.rows(); ++i) {
    std::memcpy(op.out.RowData(i), op.source.RowData(rows[i]),
                RowBytes(op.source.dtype, op.source.cols()));
  }
}

void ReferenceOps::Run(const CopyRanges& op, Stream&) {
  for (const CopyRanges::Range& range : op.ranges) {
    std::memcpy(range.destination, range.source, op.bytes);
  }
}

void ReferenceOps::Run(const AddResidual& op, Stream&) {
  for (int64_t t = 0; t < op.x.rows(); ++t) {
    for (int64_t i = 0; i < op.x.cols(); ++i) {
      op.residual.Row<float>(t)[i] += op.scale * op.x.Row<float>(t)[i];
    }
  }
}

void ReferenceOps::Run(const Softcap& op, Stream&) {
  for (int64_t t = 0; t < op.x.rows(); ++t) {
    for (int64_t i = 0; i < op.x.cols(); ++i) {
      float& x = op.x.Row<float>(t)[i];
      x = static_cast<float>(op.cap * std::tanh(static_cast<double>(x) / op.cap));
    }
  }
}

void ReferenceOps::Run(const AddLayerNorm& op, Stream&) {
  const int64_t hidden = op.residual.cols();
  const auto* weight = static_cast<const float*>(op.weight.data);
  const auto* bias = op.bias.empty() ? nullptr : static_cast<const float*>(op.bias.data);
  for (int64_t t = 0; t < op.residual.rows(); ++t) {
    float* residual = op.residual.Row<float>(t);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < hidden; ++i) {
      if (op.x != nullptr) residual[i] += op.x->Row<float>(t)[i];
      sum += residual[i];
    }
    const double mean = sum / static_cast<double>(hidden);
    for (int64_t i = 0; i < hidden; ++i) squares += (residual[i] - mean) * (residual[i] - mean);
    const double deviation = std::sqrt(squares / static_cast<double>(hidden) + op.eps);
    for (int64_t i = 0; i < hidden; ++i) {
      const double normal = (residual[i] - mean) / deviation * weight[i];
      op.out.Row<float>(t)[i] = static_cast<float>(bias != nullptr ? normal + bias[i] : normal);
    }
  }
}

void ReferenceOps::Run(const Clamp& op, Stream&) {
  for (int64_t t = 0; t < op.x.rows(); ++t) {
    for (int64_t i = 0; i < op.x.cols(); ++i) {
      float& x = op.x.Row<float>(t)[i];
      x = x > op.limit ? op.limit : x < -op.limit ? -op.limit : x;
    }
  }
}

void ReferenceOps::Run(const Activate& op, Stream&) {
  for (int64_t t = 0; t < op.out.rows(); ++t) {
    for (int64_t i = 0; i < op.out.cols(); ++i) {
      op.out.Row<float>(t)[i] = static_cast<float>(Activated(op.activation, op.x.Row<float>(t)[i]));
    }
  }
}

void ReferenceOps::Run(const Convert& op, Stream&) {
  for (int64_t t = 0; t < op.x.rows(); ++t) {
    QuantizeRow(op.out.dtype, op.x.Row<float>(t), op.x.cols(), op.out.RowData(t));
  }
}

void ReferenceOps::Run(const RouteTokens& op, Stream&) {
  const auto* bias = op.bias.empty() ? nullptr : static_cast<const float*>(op.bias.data);
  for (int64_t t = 0; t < op.logits.rows(); ++t) {
    ChooseExperts(op.router, op.logits.Row<float>(t), bias, op.experts.Row<int32_t>(t),
                  op.weights.Row<float>(t));
  }
  GroupByExpert(op);
}

void ReferenceOps::Run(const GroupedLinear& op, Stream& stream) {
  const auto* offsets = static_cast<const int32_t*>(op.offsets.data);
  for (size_t e = 0; e < op.weights->members().size(); ++e) {
    Run(Linear{.x = op.x.Rows(offsets[e], offsets[e + 1]),
               .weight = op.weights->members()[e].get(),
               .bias = op.bias.empty()
                           ? Tensor()
                           : op.bias.Rows(static_cast<int64_t>(e), static_cast<int64_t>(e) + 1),
               .out = op.out.Rows(offsets[e], offsets[e + 1])},
        stream);
  }
}

void ReferenceOps::Run(const CombineExperts& op, Stream&) {
  for (int64_t t = 0; t < op.out.rows(); ++t) {
    for (int64_t i = 0; i < op.out.cols(); ++i) {
      double sum = 0;
      for (int64_t j = 0; j < op.rows.cols(); ++j) {
        sum += static_cast<double>(op.weights.Row<float>(t)[j]) *
               op.x.Row<float>(op.rows.Row<int32_t>(t)[j])[i];
      }
      if (!op.shared.empty()) {
        const double gate =
            op.shared_gate.empty()
                ? 1
                : 1 / (1 + std::exp(-static_cast<double>(*op.shared_gate.Row<float>(t))));
        sum += gate * op.shared.Row<float>(t)[i];
      }
      op.out.Row<float>(t)[i] = static_cast<float>(sum);
    }
  }
}

}  // namespace

std::unique_ptr<Ops> MakeReferenceOps(std::shared_ptr<Communicator> communicator) {
  return std::make_unique<ReferenceOps>(std::move(communicator));
}

}  // namespace tokamak
