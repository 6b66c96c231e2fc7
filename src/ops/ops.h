// Every operation that a model needs, once. A backend implements Ops; models, nn and the runner
// call it and know nothing else about the hardware.
//
// Conventions: a batch has num_tokens (T) rows, those of all sequences, in batch order. Tensors are
// views of the caller's memory. Outputs may be uninitialized; empty inputs are allowed. Activations
// are f32 unless a field says otherwise; "inner type" means f32, or the type of a Linear's outputs
// (PackedWeight::output). Nothing allocates or synchronizes during a step. A row's
// result never depends on other rows (batch invariance).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/function_ref.h"
#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/capabilities.h"
#include "ops/collectives.h"
#include "ops/gated_delta.h"
#include "ops/mla.h"
#include "ops/moe.h"
#include "ops/packed_weight.h"
#include "ops/sampler.h"
#include "tensor/device.h"
#include "tensor/tensor.h"
#include "tokamak/status.h"

namespace tokamak {

// out[t] = scale · table[ids[t] - first_id]; 0 if the table has no such row, because it is a shard
// of the vocabulary.
struct Embed {
  Tensor ids;  // i32 [T]; each in [0, vocab_size)
  const PackedWeight* table = nullptr;
  float scale = 1;
  int64_t first_id = 0;
  int64_t vocab_size = 0;  // 0: the table has the whole vocabulary

  // The row of a token, or -1.
  int64_t Row(int32_t id) const {
    CHECK(0 <= id && id < (vocab_size > 0 ? vocab_size : table->rows()));
    const int64_t row = id - first_id;
    return 0 <= row && row < table->rows() ? row : -1;
  }

  Tensor out;  // f32 [T, cols]
};

// residual[t] += scale · x[t], for layers without pre-norms.
struct AddResidual {
  Tensor x;         // inner type [T, cols]
  Tensor residual;  // f32 [T, cols], in/out
  float scale = 1;  // a power of two, so that the product is exact
};

// x = cap · tanh(x / cap), in place. arXiv:2408.00118, section 2.
struct Softcap {
  Tensor x;  // f32 [T, cols]
  float cap = 0;
};

// x = max(-limit, min(x, limit)), in place. NaN stays NaN.
struct Clamp {
  Tensor x;  // inner type [T, cols]
  float limit = 0;
};

// residual[t] += x[t] (if x is given); out[t] = residual[t] / rms(residual[t]) * weight, with
// rms(v) = sqrt(mean(v²) + eps). arXiv:1910.07467.
struct AddRmsNorm {
  const Tensor* x = nullptr;  // inner type [T, hidden]; null adds nothing
  Tensor residual;            // f32 [T, hidden], in/out; inner type if x is null
  Tensor weight;              // f32 [hidden]
  float eps = 0;
  // [T, hidden], in the activation type of the next Linear. May be `residual` if x is null.
  Tensor out;
};

// residual[t] += x[t] (if x is given); out[t] = (residual[t] - mean) / sqrt(variance + eps) *
// weight + bias, with the mean and the (biased) variance of residual[t]. arXiv:1607.06450.
struct AddLayerNorm {
  const Tensor* x = nullptr;  // inner type [T, hidden]; null adds nothing
  Tensor residual;            // f32 [T, hidden], in/out
  Tensor weight;              // f32 [hidden]
  Tensor bias;                // f32 [hidden], or empty
  float eps = 0;
  Tensor out;  // [T, hidden], in the activation type of the next Linear; may be `residual` if f32,
               // for layers that continue from the normalized values
};

// out[t, n] = Σ_k x[t, k] · weight[n, k] + bias[n].
struct Linear {
  Tensor x;  // [T, cols], of type weight->activation()
  const PackedWeight* weight = nullptr;
  Tensor bias;  // f32 [rows], or empty; empty if the outputs are not f32
  Tensor out;   // [T, rows], of type weight->output()
};

// The largest output of each row and its index.
struct LinearArgmax {
  Tensor x;  // [T, cols], of type weight->activation()
  const PackedWeight* weight = nullptr;
  Tensor bias;  // f32 [rows], or empty
  ArgmaxLogits out;
};

// out[t, i] = activation(gate_up[t, i]) · gate_up[t, I + i].
struct GatedActivation {
  Tensor gate_up;  // inner type [T, 2 I]
  Activation activation = Activation::kSilu;
  Tensor out;       // [T, I], in the activation type of the next Linear
  float limit = 0;  // limit and alpha: for kClampedSwiglu
  float alpha = 0;
};

// out = x, in another type.
struct Convert {
  Tensor x;    // f32 [T, cols]
  Tensor out;  // [T, cols]: f32, or the activation type of a Linear
};

// A norm and a copy of its result in another type, with the bits of these two operations: a router
// reads f32, and the experts behind it read what they multiply.
struct NormAndConvert {
  AddRmsNorm norm;
  Convert convert;  // convert.x is norm.out
};

// Gate and up of a gated MLP, and the activation, with the bits of these two operations. A backend
// that fuses them leaves linear.out unwritten.
struct GateUp {
  Linear linear;
  GatedActivation gate;  // gate.gate_up is linear.out
};

// out[t, i] = activation(x[t, i]).
struct Activate {
  Tensor x;  // inner type [T, I]
  Activation activation = Activation::kGelu;
  Tensor out;  // [T, I], in the activation type of the next Linear
};

enum class RopeStyle {
  kHalfSplit,    // pairs (i, i + rotary_dim / 2): Llama, Qwen, Mistral
  kInterleaved,  // pairs (2i, 2i + 1): GLM-4, DeepSeek
};

// cos and sin of the rotation angles, computed once per model (nn/rope.h).
struct RopeTable {
  Tensor cos_sin;  // f32 [max_positions, rotary_dim]: rotary_dim / 2 cosines, then the sines
  int32_t rotary_dim = 0;  // the first rotary_dim of head_dim dimensions rotate
  RopeStyle style = RopeStyle::kHalfSplit;
};

// Normalizes q and k per head if norms are given, rotates them, and writes k and v to the paged
// cache, rounded to its type. Rows whose slot mapping is -1 (padding) are not written.
struct RopeAndStore {
  // q, k and v have one inner type.
  Tensor q;                        // [T, num_heads * head_dim], in/out
  Tensor k;                        // [T, num_kv_heads * head_dim]; contents unspecified afterwards
  Tensor v;                        // [T, num_kv_heads * value_dim]; empty if values lie in the keys
  Tensor positions;                // i32 [T]
  Tensor slot_mapping;             // i64 [T]: block * block_size + offset in the block, or -1
  const Tensor* q_norm = nullptr;  // f32 [head_dim]
  const Tensor* k_norm = nullptr;
  float norm_eps = 0;
  const RopeTable* rope = nullptr;  // null: no rotation
  KvLayerView cache;
  int32_t q_head_dim = 0;  // of q, if it differs from the keys' (MLA)

  int32_t QueryDim() const { return q_head_dim > 0 ? q_head_dim : cache.head_dim; }
};

// out[t, h] = Σ_j softmax_j(scale · q[t, h] · k[j, g(h)]) · v[j, g(h)], with g(h) = h / (heads /
// kv_heads), over the cached keys j that position t sees: causal, within the plan's window.
struct Attention {
  Tensor q;  // inner type [T, num_heads * head_dim]; contents unspecified afterwards
  KvLayerView cache;
  const AttentionPlan* plan = nullptr;
  float scale = 0;
  float softcap = 0;  // > 0: a score s becomes softcap · tanh(s / softcap)
  // f32 [num_heads], or empty: an extra score per head, which has a weight but no value.
  Tensor sinks;
  // f32 [num_heads], or empty: adds slope · (key position - query position) to each score. ALiBi,
  // arXiv:2108.12409.
  Tensor slopes;
  // [T, num_heads * value_dim], in the activation type of the next Linear or HeadLinear; if
  // value_dim differs from head_dim, f32 or the activation type of the HeadLinear.
  Tensor out;
  // f32 [T, num_heads]: log Σ_j exp(score_j), including the sink's score; empty if not wanted.
  Tensor output_lse;
};

// out[i] = source[rows[i]].
struct GatherRows {
  Tensor source;  // [T, cols], any type
  Tensor rows;    // i32 [R]
  Tensor out;     // [R, cols]
};

// out[to[i]] = source[from[i]], for distinct `to`. Where from[i] is -1 (padding), nothing is
// written and to[i] is not read.
struct CopyRows {
  Tensor source;  // [N, cols]
  Tensor from;    // i32 [R]
  Tensor to;      // i32 [R]
  Tensor out;     // [M, cols], of the source's type
};

// The first half of a layer's experts: gathers each expert's tokens, multiplies them by gate and
// up, and applies the activation, with the bits of these three operations. A backend that fuses
// some of them leaves what is between them unwritten.
struct GateUpExperts {
  GatherRows gather;     // of T tokens, each top_k times
  Tensor rows;           // i32 [T, top_k]: where `gather` puts each token (RouteTokens)
  GroupedLinear linear;  // linear.x is gather.out
  GatedActivation gate;  // gate.gate_up is linear.out
};

// out[indices[i]] = values[i], for distinct indices.
struct ScatterElements {
  Tensor indices;  // i32 [N]
  Tensor values;   // i32 [N]
  Tensor out;      // i32, any shape; indices count its elements
};

// Copies `bytes` bytes from each source to its destination. Ranges must not overlap. `ranges` is
// read before Run returns.
struct CopyRanges {
  struct Range {
    const std::byte* source;
    std::byte* destination;
  };
  std::span<const Range> ranges;
  size_t bytes = 0;
};

enum class MemoryKind {
  kDevice,      // memory for kernels
  kHostPinned,  // host memory for asynchronous copies
};

class Ops {
 public:
  virtual ~Ops() = default;

  // "cpu/avx512", "reference", "count", ...
  virtual std::string_view name() const = 0;
  // The optional features that this backend has. Models that need others are refused when they are
  // loaded.
  virtual Capabilities capabilities() const { return {}; }
  // The place of this backend among the ranks that compute a step together.
  virtual RankInfo rank() const { return {}; }

  // Bytes of device memory that can still be allocated; none if the device uses host memory.
  virtual std::optional<int64_t> FreeDeviceMemory() { return std::nullopt; }
  // Returns uninitialized memory, aligned for any tensor, or kResourceExhausted with the size. Not
  // during a step.
  virtual Result<Buffer> Allocate(size_t bytes, MemoryKind kind) = 0;
  // Packs a weight for this backend, with all threads. Returns the source's errors.
  virtual Result<std::unique_ptr<PackedWeight>> PackWeight(const WeightSpec& spec) = 0;
  // Packs weights of equal use, shape and type, at least one. The default packs one after the
  // other.
  virtual Result<std::unique_ptr<PackedStack>> PackStack(std::span<const WeightSpec> members);
  virtual Result<std::unique_ptr<AttentionPlan>> MakeAttentionPlan(const AttentionShape& shape) = 0;
  virtual Result<std::unique_ptr<Sampler>> MakeSampler(const SamplerShape& shape) = 0;

  virtual std::unique_ptr<Stream> MakeStream() = 0;
  // Waits for all work on the stream. Returns an error if any of it failed.
  virtual Status Synchronize(Stream& stream) = 0;
  // Events mark points in a stream, so that one step can be waited for while the next runs. The
  // defaults are for backends whose work is done when a call returns.
  virtual std::unique_ptr<Event> MakeEvent() { return std::make_unique<Event>(); }
  virtual void Record(Event& /*event*/, Stream& /*stream*/) {}
  // Returns whether all work before the last Record is done.
  virtual bool Reached(const Event& /*event*/) { return true; }
  // Waits until that work is done. Returns an error if any of it failed.
  virtual Status Await(Event& /*event*/) { return Status(); }
  // An event whose time SecondsBetween can read. Null if the work is done when a call returns: the
  // host's clock is enough then.
  virtual std::unique_ptr<Event> MakeTimedEvent() { return nullptr; }
  virtual double SecondsBetween(const Event& /*from*/, const Event& /*to*/) { return 0; }
  // Later work on the stream waits for the event's last Record on another stream. The host does not
  // wait.
  virtual void WaitFor(Stream& /*stream*/, const Event& /*event*/) {}

  // Graphs are optional. Capture records the operations that `run` submits instead of doing them;
  // `run` must not copy between host and device. Not during a step. Launch runs them again on the
  // current contents of their memory.
  virtual bool has_graphs() const { return false; }
  virtual Result<std::unique_ptr<Graph>> Capture(Stream& stream, FunctionRef<void()> run);
  virtual void Launch(const Graph& /*graph*/, Stream& /*stream*/) {}

  // Copy between host memory and memory of Allocate, in stream order. The host memory must stay
  // valid and unchanged until then.
  virtual void CopyToDevice(void* device, const void* host, size_t bytes, Stream& stream) = 0;
  virtual void CopyToHost(void* host, const void* device, size_t bytes, Stream& stream) = 0;

  virtual void Run(const Embed& op, Stream& stream) = 0;
  virtual void Run(const AddRmsNorm& op, Stream& stream) = 0;
  virtual void Run(const Linear& op, Stream& stream) = 0;
  virtual void Run(const GatedActivation& op, Stream& stream) = 0;
  virtual void Run(const RopeAndStore& op, Stream& stream) = 0;
  virtual void Run(const Attention& op, Stream& stream) = 0;
  virtual void Run(const GatherRows& op, Stream& stream) = 0;
  virtual void Run(const CopyRows& op, Stream& stream) = 0;
  virtual void Run(const ScatterElements& op, Stream& stream) = 0;
  virtual void Run(const CopyRanges& op, Stream& stream) = 0;

  // For a backend that is one of several ranks (ops/collectives.h).
  virtual void Run(const AllReduce& op, Stream& stream);
  virtual void Run(const AllGather& op, Stream& stream);
  virtual void Run(const Send& op, Stream& stream);
  virtual void Run(const Receive& op, Stream& stream);

  // Optional: saves writing and reading all outputs.
  virtual bool has_linear_argmax() const { return false; }
  virtual void Run(const LinearArgmax& op, Stream& stream);

  // The defaults run the parts.
  virtual void Run(const NormAndConvert& op, Stream& stream);
  virtual void Run(const GateUp& op, Stream& stream);
  virtual void Run(const GateUpExperts& op, Stream& stream);

  // Optional; each belongs to a capability (ops/capabilities.h).
  virtual void Run(const AddResidual& op, Stream& stream);
  virtual void Run(const Softcap& op, Stream& stream);
  virtual void Run(const AddLayerNorm& op, Stream& stream);
  virtual void Run(const Clamp& op, Stream& stream);
  virtual void Run(const Activate& op, Stream& stream);
  virtual void Run(const Convert& op, Stream& stream);
  virtual void Run(const RouteTokens& op, Stream& stream);
  virtual void Run(const GroupedLinear& op, Stream& stream);
  virtual void Run(const CombineExperts& op, Stream& stream);
  virtual void Run(const HeadLinear& op, Stream& stream);
  virtual void Run(const LatentAttention& op, Stream& stream);
  virtual void Run(const CausalConv& op, Stream& stream);
  virtual void Run(const GatedDelta& op, Stream& stream);
  virtual void Run(const GateOutput& op, Stream& stream);
};

}  // namespace tokamak
