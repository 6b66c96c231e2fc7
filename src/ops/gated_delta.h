// Layers that keep a state of fixed size per sequence instead of keys and values per position: a
// causal convolution over the last tokens, then a matrix per head. Gated delta networks:
// arXiv:2412.06464.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace tokamak {

// The state that a layer keeps of each sequence.
struct StateLayerSpec {
  // The convolution's inputs of the last conv_kernel - 1 tokens, oldest first:
  // f32 [conv_kernel - 1, conv_channels].
  int32_t conv_channels = 0;
  int32_t conv_kernel = 0;
  // f32 [num_heads, key_dim, value_dim].
  int32_t num_heads = 0;
  int32_t key_dim = 0;
  int32_t value_dim = 0;

  constexpr int64_t ConvElements() const { return int64_t{conv_kernel - 1} * conv_channels; }
  constexpr int64_t MatrixElements() const { return int64_t{num_heads} * key_dim * value_dim; }

  friend bool operator==(const StateLayerSpec&, const StateLayerSpec&) = default;
};

// One layer's states, one per slot. Both parts of a slot are aligned to 64 bytes.
struct StateLayerView {
  StateLayerSpec spec;
  float* conv = nullptr;    // of slot 0
  float* matrix = nullptr;  // of slot 0
  int64_t slot_stride = 0;  // elements from one slot's state to the next one's

  float* Conv(int32_t slot) const { return conv + slot * slot_stride; }
  float* Matrix(int32_t slot) const { return matrix + slot * slot_stride; }
};

// The step's tokens by sequence, as in AttentionBatch: sequence s owns the tokens
// [query_start_loc[s], query_start_loc[s + 1]), which are the last of its seq_lens[s] positions.
// The sequence's state is in slot slots[s]: that of all earlier positions before the step, and of
// the step's tokens too behind it. A sequence whose tokens are all of its positions begins with a
// state of zeros, whatever the slot holds. A sequence of length 0 is padding: its slot is neither
// read nor written, and results are unspecified.
//
// In a graph (ops/graph_batch.h) only the counts of the spans on the host are valid.
struct StateBatch {
  // On the host, to cut the work.
  std::span<const int32_t> query_start_loc;  // [num_seqs + 1]
  std::span<const int32_t> seq_lens;         // [num_seqs]
  // The same in device memory.
  Tensor device_query_start_loc;  // i32 [num_seqs + 1]
  Tensor device_seq_lens;         // i32 [num_seqs]
  Tensor slots;                   // i32 [num_seqs], in device memory; distinct but for padding

  int32_t num_seqs() const { return static_cast<int32_t>(seq_lens.size()); }
};

// out[t] = silu(Σ_j weight[j] · x[t - kernel + 1 + j]) for each channel, over the inputs of one
// sequence.
struct CausalConv {
  Tensor x;       // f32 [T, channels]
  Tensor weight;  // f32 [kernel, channels]
  StateLayerView state;
  StateBatch batch;
  Tensor out;  // f32 [T, channels]
};

// The gated delta rule (arXiv:2412.06464, section 3.1), token after token. With
//
//   k = k / |k|,  q = q / |q| / sqrt(key_dim),  where |x|² = Σ x² + 1e-6,
//   decay = exp(-rate · log(1 + exp(a + bias))),  beta = 1 / (1 + exp(-b)),
//
// a head's matrix S [key_dim, value_dim] becomes decay · S + k (beta · (v - decay · Sᵀ k))ᵀ, and
// out = Sᵀ q with the new one.
struct GatedDelta {
  Tensor q, k;        // f32 [T, key_heads * key_dim]; contents unspecified afterwards
  Tensor v;           // f32 [T, num_heads * value_dim]
  Tensor a, b;        // f32 [T, num_heads]; contents unspecified afterwards
  Tensor rate, bias;  // f32 [num_heads]
  // Heads h, h + key_heads, ... share keys and queries; else consecutive heads do.
  bool tiled = false;
  StateLayerView state;
  StateBatch batch;
  Tensor out;  // f32 [T, num_heads * value_dim]

  static constexpr float kNormEps = 1e-6f;
  int64_t key_heads() const { return q.cols() / state.spec.key_dim; }
  // The head of keys and queries that a head reads.
  int64_t KeyHead(int64_t head) const {
    return tiled ? head % key_heads() : head / (state.spec.num_heads / key_heads());
  }
};

enum class OutputGate : uint8_t { kSigmoid, kSilu };

// out[t] = x[t] · sigmoid(gate[t]), or · silu(gate[t]). If there is a norm, each head of x is first
// divided by its root mean square and multiplied by the norm's weights, as in AddRmsNorm.
struct GateOutput {
  Tensor x;     // f32 or inner type [T, cols]
  Tensor gate;  // of x's type [T, cols]
  OutputGate activation = OutputGate::kSigmoid;
  const Tensor* norm = nullptr;  // f32 [head_dim]
  float norm_eps = 0;
  Tensor out;  // [T, cols], in the activation type of the next Linear
};

}  // namespace tokamak
