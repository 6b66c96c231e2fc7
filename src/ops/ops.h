// Every operation that a model needs, once. A backend implements Ops; models, nn and the runner
// call it and know nothing else about the hardware.
//
// Conventions: num_tokens (T) rows of all sequences together, in batch order. Tensors are views
// that the caller allocated; outputs may be uninitialized; empty inputs are allowed. Activations
// are f32 unless a field says otherwise. Nothing allocates or synchronizes while a step runs.
// Results of a row never depend on the other rows (batch invariance).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/function_ref.h"
#include "ops/attention.h"
#include "ops/mla.h"
#include "ops/moe.h"
#include "ops/packed_weight.h"
#include "ops/sampler.h"
#include "tensor/device.h"
#include "tensor/tensor.h"
#include "tokamak/status.h"

namespace tokamak {

// out[t] = scale · table[ids[t]].
struct Embed {
  Tensor ids;  // i32 [T]; each in [0, table.rows())
  const PackedWeight* table = nullptr;
  float scale = 1;
  Tensor out;  // f32 [T, cols]
};

// residual[t] += x[t], for layers that do not normalize what they read.
struct AddResidual {
  Tensor x;         // f32 [T, cols]
  Tensor residual;  // f32 [T, cols], in/out
};

// x = cap · tanh(x / cap), in place. arXiv:2408.00118, section 2.
struct Softcap {
  Tensor x;  // f32 [T, cols]
  float cap = 0;
};

// x = max(-limit, min(x, limit)), in place; NaN stays.
struct Clamp {
  Tensor x;  // f32 [T, cols]
  float limit = 0;
};

// residual[t] += x[t] (when x is given); out[t] = residual[t] / rms(residual[t]) * weight, with
// rms(v) = sqrt(mean(v²) + eps). arXiv:1910.07467.
struct AddRmsNorm {
  const Tensor* x = nullptr;  // f32 [T, hidden]; null: nothing to add
  Tensor residual;            // f32 [T, hidden], in/out
  Tensor weight;              // f32 [hidden]
  float eps = 0;
  // [T, hidden], in the activation type of the Linear that follows. May be residual itself where
  // nothing is added.
  Tensor out;
};

// residual[t] += x[t] (when x is given); out[t] = (residual[t] - mean) / sqrt(variance + eps) *
// weight + bias, with the mean and the (biased) variance of residual[t]. arXiv:1607.06450.
struct AddLayerNorm {
  const Tensor* x = nullptr;  // f32 [T, hidden]; null: nothing to add
  Tensor residual;            // f32 [T, hidden], in/out
  Tensor weight;              // f32 [hidden]
  Tensor bias;                // f32 [hidden], or empty
  float eps = 0;
  Tensor out;  // [T, hidden], in the activation type of the Linear that follows; f32: may be
               // `residual`, for layers that go on from what they normalized
};

// out[t, n] = Σ_k x[t, k] · weight[n, k] + bias[n].
struct Linear {
  Tensor x;  // [T, cols], of type weight->activation()
  const PackedWeight* weight = nullptr;
  Tensor bias;  // f32 [rows], or empty
  Tensor out;   // f32 [T, rows]
};

// The largest of the outputs that Linear would give, for those who want no more of them.
struct LinearArgmax {
  Tensor x;  // [T, cols], of type weight->activation()
  const PackedWeight* weight = nullptr;
  Tensor bias;  // f32 [rows], or empty
  ArgmaxLogits out;
};

enum class Activation {
  kSilu,      // x · σ(x)
  kGeluTanh,  // x · (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2
  kGelu,      // x · Φ(x), the normal distribution's; arXiv:1606.08415
  // Of gpt-oss, arXiv:2508.10925, and gated alone: with g = min(gate, limit) and u = up clamped to
  // ±limit, g · σ(alpha · g) · (u + 1).
  kClampedSwiglu,
};

// out[t, i] = activation(gate_up[t, i]) · gate_up[t, I + i].
struct GatedActivation {
  Tensor gate_up;  // f32 [T, 2 I]
  Activation activation = Activation::kSilu;
  Tensor out;       // [T, I], in the activation type of the Linear that follows
  float limit = 0;  // kClampedSwiglu
  float alpha = 0;
};

// out[t, i] = activation(x[t, i]).
struct Activate {
  Tensor x;  // f32 [T, I]
  Activation activation = Activation::kGelu;
  Tensor out;  // [T, I], in the activation type of the Linear that follows
};

enum class RopeStyle {
  kHalfSplit,    // pairs (i, i + rotary_dim / 2): Llama, Qwen, Mistral
  kInterleaved,  // pairs (2i, 2i + 1): GLM-4, DeepSeek
};

// Rotation angles, made once per model (nn/rope.h).
struct RopeTable {
  Tensor cos_sin;  // f32 [max_positions, rotary_dim]: rotary_dim / 2 cosines, then the sines
  int32_t rotary_dim = 0;  // the first rotary_dim of head_dim dimensions rotate; the rest pass
  RopeStyle style = RopeStyle::kHalfSplit;
};

// Normalizes q and k per head where norms are given, rotates them by their positions, and writes k
// and v to the paged cache, rounded to its type. Rows whose slot mapping is -1 (padding) are not
// written.
struct RopeAndStore {
  Tensor q;             // f32 [T, num_heads * head_dim], in/out
  Tensor k;             // f32 [T, num_kv_heads * head_dim]; contents unspecified afterwards
  Tensor v;             // f32 [T, num_kv_heads * value_dim]; empty where values are in the keys
  Tensor positions;     // i32 [T]
  Tensor slot_mapping;  // i64 [T]: block * block_size + offset in the block, or -1
  const Tensor* q_norm = nullptr;  // f32 [head_dim]
  const Tensor* k_norm = nullptr;
  float norm_eps = 0;
  const RopeTable* rope = nullptr;  // null: no rotation
  KvLayerView cache;
  int32_t q_head_dim = 0;  // of q, where it is not that of the keys (latents)

  int32_t QueryDim() const { return q_head_dim > 0 ? q_head_dim : cache.head_dim; }
};

// out[t, h] = Σ_j softmax_j(scale · q[t, h] · k[j, g(h)]) · v[j, g(h)] over the keys j that
// position t sees (causal, within the plan's window), all read from the cache; g(h) = h / (heads /
// kv_heads).
struct Attention {
  Tensor q;  // f32 [T, num_heads * head_dim]; contents unspecified afterwards
  KvLayerView cache;
  const AttentionPlan* plan = nullptr;
  float scale = 0;
  float softcap = 0;  // > 0: a score s becomes softcap · tanh(s / softcap)
  Tensor sinks;       // f32 [num_heads], or empty: a score per head that has a weight and no value
  // f32 [num_heads], or empty: slope · (position of the key - position of the query) is added to a
  // score. ALiBi, arXiv:2108.12409.
  Tensor slopes;
  // [T, num_heads * value_dim], in the activation type of the Linear that follows; f32 where
  // value_dim is not head_dim.
  Tensor out;
  // f32 [T, num_heads]: log Σ_j exp(score_j), the sink's included; or empty when not wanted.
  Tensor output_lse;
};

// out = x, in another type.
struct Convert {
  Tensor x;    // f32 [T, cols]
  Tensor out;  // [T, cols]: f32, or the activation type of a Linear
};

// out[i] = source[rows[i]].
struct GatherRows {
  Tensor source;  // [T, cols], any type
  Tensor rows;    // i32 [R]
  Tensor out;     // [R, cols]
};

// out[indices[i]] = values[i], for distinct indices.
struct ScatterElements {
  Tensor indices;  // i32 [N]
  Tensor values;   // i32 [N]
  Tensor out;      // i32, any shape; indices count its elements
};

// Copies `bytes` bytes from each source to its destination; no range overlaps another. The list of
// ranges is read before Run returns.
struct CopyRanges {
  struct Range {
    const std::byte* source;
    std::byte* destination;
  };
  std::span<const Range> ranges;
  size_t bytes = 0;
};

enum class MemoryKind {
  kDevice,      // where kernels compute
  kHostPinned,  // on the host, reachable by asynchronous copies
};

class Ops {
 public:
  virtual ~Ops() = default;

  // "cpu/avx512", "reference", "count", ...
  virtual std::string_view name() const = 0;

  // Bytes of device memory that can still be allocated; nothing where that is the host's memory.
  virtual std::optional<int64_t> FreeDeviceMemory() { return std::nullopt; }
  // Uninitialized memory, aligned for any tensor; kResourceExhausted with the size when there is
  // none. Not during a step.
  virtual Result<Buffer> Allocate(size_t bytes, MemoryKind kind) = 0;
  // Reads a weight into this backend's layout, with all threads. Errors are the source's.
  virtual Result<std::unique_ptr<PackedWeight>> PackWeight(const WeightSpec& spec) = 0;
  virtual Result<std::unique_ptr<AttentionPlan>> MakeAttentionPlan(const AttentionShape& shape) = 0;
  virtual Result<std::unique_ptr<Sampler>> MakeSampler(const SamplerShape& shape) = 0;

  virtual std::unique_ptr<Stream> MakeStream() = 0;
  // Waits for all work on the stream; an error that any of it met.
  virtual Status Synchronize(Stream& stream) = 0;
  // Events mark points in a stream's work, so that one step can be waited for while the next runs.
  // The defaults serve backends whose work has happened when the call returns.
  virtual std::unique_ptr<Event> MakeEvent() { return std::make_unique<Event>(); }
  virtual void Record(Event& /*event*/, Stream& /*stream*/) {}
  // Whether all work before the last Record has been done.
  virtual bool Reached(const Event& /*event*/) { return true; }
  // Waits until it has; an error that any of that work met.
  virtual Status Await(Event& /*event*/) { return Status(); }
  // An event that also tells when it was reached, in SecondsBetween; null where work has happened
  // when a call is back, and the host's clock tells as much.
  virtual std::unique_ptr<Event> MakeTimedEvent() { return nullptr; }
  virtual double SecondsBetween(const Event& /*from*/, const Event& /*to*/) { return 0; }
  // Later work on the stream starts when the event's last Record, on another stream, has been
  // reached. The host does not wait.
  virtual void WaitFor(Stream& /*stream*/, const Event& /*event*/) {}

  // Graphs are optional. Capture records what `run` gives to the stream instead of doing it:
  // operations alone, no copies between host and device; not during a step. Launch starts it again,
  // with the memory that it names as that is then.
  virtual bool has_graphs() const { return false; }
  virtual Result<std::unique_ptr<Graph>> Capture(Stream& stream, FunctionRef<void()> run);
  virtual void Launch(const Graph& /*graph*/, Stream& /*stream*/) {}

  // Between host memory and memory of Allocate, in stream order. The host side must stay valid and
  // unchanged until the copy has happened.
  virtual void CopyToDevice(void* device, const void* host, size_t bytes, Stream& stream) = 0;
  virtual void CopyToHost(void* host, const void* device, size_t bytes, Stream& stream) = 0;

  virtual void Run(const Embed& op, Stream& stream) = 0;
  virtual void Run(const AddRmsNorm& op, Stream& stream) = 0;
  virtual void Run(const Linear& op, Stream& stream) = 0;
  virtual void Run(const GatedActivation& op, Stream& stream) = 0;
  virtual void Run(const RopeAndStore& op, Stream& stream) = 0;
  virtual void Run(const Attention& op, Stream& stream) = 0;
  virtual void Run(const GatherRows& op, Stream& stream) = 0;
  virtual void Run(const ScatterElements& op, Stream& stream) = 0;
  virtual void Run(const CopyRanges& op, Stream& stream) = 0;

  // Optional: it saves writing all outputs and reading them again.
  virtual bool has_linear_argmax() const { return false; }
  virtual void Run(const LinearArgmax& op, Stream& stream);

  // Optional, for few families: AddResidual, Softcap, Clamp, AddLayerNorm and Activate, the last
  // two activations, Embed::scale other than 1, Attention::softcap, sinks and slopes,
  // attention that is not causal.
  virtual bool has_extras() const { return false; }
  virtual void Run(const AddResidual& op, Stream& stream);
  virtual void Run(const Softcap& op, Stream& stream);
  virtual void Run(const AddLayerNorm& op, Stream& stream);
  virtual void Run(const Clamp& op, Stream& stream);
  virtual void Run(const Activate& op, Stream& stream);

  // MoE layers are optional: Convert and the operations of ops/moe.h.
  virtual bool has_moe() const { return false; }
  virtual void Run(const Convert& op, Stream& stream);
  virtual void Run(const RouteTokens& op, Stream& stream);
  virtual void Run(const GroupedLinear& op, Stream& stream);
  virtual void Run(const CombineExperts& op, Stream& stream);

  // Optional, for latent attention: Convert and the operations of ops/mla.h, values of other sizes
  // than keys or inside them, RopeAndStore::q_head_dim.
  virtual bool has_mla() const { return false; }
  virtual void Run(const HeadLinear& op, Stream& stream);
  virtual void Run(const LatentAttention& op, Stream& stream);
};

}  // namespace tokamak
