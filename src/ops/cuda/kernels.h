// The kernels' host side: one function per kernel that launches it and returns what the launch
// returned. Pointers are device memory unless stated; strides are in elements.
//
// All of these can be captured into a CUDA graph: nothing allocates or synchronizes, and the shape
// of a launch depends on the number of tokens (T) or of rows (R) and on the model's shape alone.
// Everything else that differs between steps is read from device memory. A launch with nothing to
// do is left out.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/gated_delta.h"
#include "ops/moe.h"
#include "ops/random_weight.h"
#include "tensor/tensor.h"

namespace tokamak::cuda {

// The row stride, in elements, of a tensor that is f32 or bf16.
inline int64_t ElementStride(const Tensor& tensor) {
  CHECK(tensor.dtype == DType::kF32 || tensor.dtype == DType::kBF16);
  return tensor.row_stride / Info(tensor.dtype).block_bytes;
}

// Whether this build has machine code for the current device.
cudaError_t CheckDeviceCode();

// Launches a kernel that never ends, for tests.
cudaError_t LaunchStall(cudaStream_t stream);

// out[t] = scale · table[ids[t]]: [rows, cols] to f32 [T, cols]. One CTA per token.
struct EmbedArgs {
  const int32_t* ids;
  const void* table;
  float* out;
  int64_t num_tokens, cols, out_stride;
  bool table_bf16;  // else f32
  float scale = 1;
};
cudaError_t LaunchEmbed(const EmbedArgs& args, cudaStream_t stream);

// See AddRmsNorm. One CTA per token. As a dependent: the kernel ahead must not write `weight`.
struct NormArgs {
  const void* x;    // or null
  float* residual;  // or null: x is normalized, and nothing else is written
  const float* weight;
  void* out;
  bool x_bf16, out_bf16;  // else f32
  int64_t num_tokens, cols, x_stride, residual_stride, out_stride;
  float eps;
  // Groups of four columns per thread: 1, 2 or 4, doubled until 1024 threads can hold the row. If
  // that takes more than 4, another kernel reads the row twice. The number decides the order of the
  // sum.
  int fours = 1;
  void* copy = nullptr;  // bf16 [T, cols], or null; `out` is f32 then
  int64_t copy_stride = 0;
};
cudaError_t LaunchAddRmsNorm(const NormArgs& args, cudaStream_t stream);
// Whether rows can be read and written four columns at a time.
bool ReadsFours(const NormArgs& args);

// See AddLayerNorm. One CTA per token.
struct LayerNormArgs {
  const void* x;  // or null
  float* residual;
  const float* weight;
  const float* bias;  // or null
  void* out;
  bool x_bf16, out_bf16;  // else f32
  int64_t num_tokens, cols, x_stride, residual_stride, out_stride;
  float eps;
};
cudaError_t LaunchAddLayerNorm(const LayerNormArgs& args, cudaStream_t stream);

// See GatedActivation.
struct GateArgs {
  const void* gate_up;
  void* out;
  bool in_bf16, out_bf16;  // else f32
  Activation activation;
  int64_t num_tokens, width, in_stride, out_stride;
  int fours = 2;    // groups of four columns of a thread: 1 or 2
  float limit = 0;  // limit and alpha: for kClampedSwiglu
  float alpha = 0;
};
cudaError_t LaunchGate(const GateArgs& args, cudaStream_t stream);

// y = f(x), or f(x, y), element by element: AddResidual, Softcap, Clamp, Activate and Convert.
struct PointwiseArgs {
  const void* x;
  void* y;              // may be x
  bool x_bf16, y_bf16;  // else f32
  int64_t num_tokens, cols, x_stride, y_stride;
  float limit = 0;  // Clamp's, or Softcap's cap
  float scale = 1;  // AddResidual's
  Activation activation = Activation::kGelu;
};
cudaError_t LaunchAddResidual(const PointwiseArgs& args, cudaStream_t stream);  // y: f32
cudaError_t LaunchSoftcap(const PointwiseArgs& args, cudaStream_t stream);      // both f32
cudaError_t LaunchClamp(const PointwiseArgs& args, cudaStream_t stream);        // y is x
cudaError_t LaunchActivate(const PointwiseArgs& args, cudaStream_t stream);
cudaError_t LaunchConvert(const PointwiseArgs& args, cudaStream_t stream);  // x: f32

// See RopeAndStore. As a dependent: the kernel ahead must write nothing of this but q, k, v and the
// cache.
struct RopeArgs {
  void* q;
  const void* k;
  const void* v;  // null if values lie in the keys
  bool bf16;      // q, k and v; else f32
  const int32_t* positions;
  const int64_t* slot_mapping;
  const float* q_norm;  // or null
  const float* k_norm;
  float norm_eps;
  const float* cos_sin;  // or null: no rotation
  int32_t rotary_dim;
  bool half_split;  // else interleaved
  int64_t num_tokens, q_stride, k_stride, v_stride, cos_sin_stride;
  int32_t num_heads;
  int32_t q_head_dim;
  KvLayerView cache;
};
cudaError_t LaunchRopeAndStore(const RopeArgs& args, cudaStream_t stream);

// out[to[i]] = source[rows[i]], or nothing if rows[i] is -1. Rows of `row_bytes` bytes; strides in
// bytes. One CTA per row.
struct GatherArgs {
  const std::byte* source;
  const int32_t* rows;
  const int32_t* to = nullptr;  // null: i
  std::byte* out;
  int64_t num_rows, row_bytes, source_stride, out_stride;
};
cudaError_t LaunchGather(const GatherArgs& args, cudaStream_t stream);

// out[rows[t, j]] = source[t] for j < top_k: what LaunchGather does with the inverse of `rows`, but
// each row is read once. Rows of `row_bytes` bytes; strides in bytes. One CTA per row of source.
// Sizes, strides and addresses are multiples of 16 bytes (FitsSpread).
struct SpreadArgs {
  const std::byte* source;
  const int32_t* rows;  // [num_rows, top_k], dense
  std::byte* out;
  int64_t num_rows, row_bytes, source_stride, out_stride;
  int32_t top_k;
};
bool FitsSpread(const SpreadArgs& args);
cudaError_t LaunchSpread(const SpreadArgs& args, cudaStream_t stream);

// out[indices[i]] = values[i]. One thread per element.
struct ScatterArgs {
  const int32_t* indices;
  const int32_t* values;
  int32_t* out;
  int64_t count;
};
cudaError_t LaunchScatter(const ScatterArgs& args, cudaStream_t stream);

// Copies between up to kMaxRanges pairs of ranges, which travel as the kernel's argument.
struct CopyArgs {
  static constexpr int kMaxRanges = 120;
  const std::byte* source[kMaxRanges];
  std::byte* destination[kMaxRanges];
  int64_t bytes;
  int32_t num_ranges;
};
cudaError_t LaunchCopyRanges(const CopyArgs& args, cudaStream_t stream);

// out[m, n] = Σ_k x[m, k] · w[n, k]: any shape and alignment, each output one chain of fused
// multiply-adds over k.
struct PlainLinearArgs {
  const void* x;       // [num_tokens, cols]
  const void* weight;  // [rows, cols], dense
  void* out;           // [num_tokens, rows]
  int64_t num_tokens, rows, cols, x_stride, out_stride;
  bool bf16;      // x and weight; else both f32
  bool out_bf16;  // else f32; only with `bf16`
};
cudaError_t LaunchPlainLinear(const PlainLinearArgs& args, cudaStream_t stream);

// See HeadLinear: out[t, h] = [copied[t, h] | W_h · x[t, h]].
struct HeadLinearArgs {
  // Columns of each head, as in HeadColumns; `step` is 0 or the distance between heads.
  struct Columns {
    const void* data;
    bool bf16;  // else f32
    int64_t stride, first, step, cols;
  };
  Columns x;
  Columns copied;       // cols 0: none
  const void* weights;  // [num_heads, rows, x.cols], dense
  void* out;            // [num_tokens, num_heads · (copied.cols + rows)]
  bool weights_bf16;    // else f32
  bool out_bf16;        // else f32
  int64_t num_tokens, num_heads, rows, out_stride;

  constexpr int64_t out_cols() const { return copied.cols + rows; }  // of a head
};
// Any shape and alignment, each output one chain of fused multiply-adds over ascending columns.
// With weights in f32, x and out are too.
cudaError_t LaunchPlainHeadLinear(const HeadLinearArgs& args, cudaStream_t stream);
// Whether LaunchMmaHeadLinear takes such weights and inputs. It depends on the shape of a weight
// and on the alignment of rows alone.
bool HasMmaHeadLinear(const HeadLinearArgs& args);
// On tensor cores, for weights in bf16: x is rounded to bf16, and each output is one chain of
// mma.sync over ascending columns, 16 at a time. As a dependent: the kernel ahead must not write
// `weights`.
cudaError_t LaunchMmaHeadLinear(const HeadLinearArgs& args, cudaStream_t stream);

// out[m, n] += bias[n].
struct BiasArgs {
  const float* bias;
  float* out;
  int64_t num_tokens, rows, out_stride;
};
cudaError_t LaunchAddBias(const BiasArgs& args, cudaStream_t stream);

// The router's product: out[m, n] = Σ_k x[m, k] · w[n, k] + bias[n], all f32. Each output is 32
// chains of fused multiply-adds, which are added in pairs. As a dependent: the kernel ahead must
// not write `weight`.
struct RouterLinearArgs {
  const float* x;       // [num_tokens, cols]
  const float* weight;  // [rows, cols], dense
  const float* bias;    // [rows], or null
  float* out;           // [num_tokens, rows]
  int64_t num_tokens, rows, cols, x_stride, out_stride;
};
cudaError_t LaunchRouterLinear(const RouterLinearArgs& args, cudaStream_t stream);
// The two that it chooses from, with equal bits: for few tokens, and for many. Tiles need
// HasRouterTiles, which depends on the GPU and on whether rows can be read four columns at a time.
cudaError_t LaunchRouterLanes(const RouterLinearArgs& args, cudaStream_t stream);
cudaError_t LaunchRouterTiles(const RouterLinearArgs& args, cudaStream_t stream);
bool HasRouterTiles(const RouterLinearArgs& args);

// See RouteTokens; all but `logits` are dense. At most 1024 experts.
struct RouteArgs {
  const float* logits;
  const float* bias;  // or null
  RouterConfig router;
  int32_t* experts;
  float* weights;
  int32_t* tokens;
  int32_t* rows;
  int32_t* offsets;
  int64_t num_tokens, logits_stride;
};
cudaError_t LaunchRoute(const RouteArgs& args, cudaStream_t stream);

// See CombineExperts; `rows` and `weights` are dense.
struct CombineArgs {
  const float* x;
  const int32_t* rows;
  const float* weights;
  const void* shared;        // or null
  const float* shared_gate;  // or null
  float* out;
  int64_t num_tokens, cols, x_stride, shared_stride, shared_gate_stride, out_stride;
  int32_t top_k;
  bool shared_bf16;  // else f32
};
cudaError_t LaunchCombine(const CombineArgs& args, cudaStream_t stream);

// See GroupedLinear. At most 1024 groups.
struct GroupedLinearArgs {
  const void* x;           // [num_rows, cols]
  const void* weights;     // [groups · rows, cols], dense
  const int32_t* offsets;  // [groups + 1]
  const float* bias;       // [groups, rows], or null
  void* out;               // [num_rows, rows]
  int64_t num_rows, rows, cols, x_stride, out_stride;
  int32_t groups;
  bool bf16;      // x and weights; else both f32
  bool out_bf16;  // else f32; only with `bf16`
  // Both are only for LaunchGroupedGemm.
  // x is one row, [1, cols], which every group that is not empty multiplies. None has a second row.
  bool one_row = false;
  // Needs out_bf16. Rows are those of gate, then those of up. Each sum is rounded to bf16, and
  // out[r, i] = silu(gate[r, i]) · up[r, i], [num_rows, rows / 2].
  bool gated = false;
};
cudaError_t LaunchPlainGroupedLinear(const GroupedLinearArgs& args, cudaStream_t stream);

// out bf16 [rows, cols].
cudaError_t LaunchRandomWeight(const RandomWeight& weight, int64_t rows, int64_t cols,
                               uint16_t* out, cudaStream_t stream);

// For choosing GEMM algorithms. x bf16 [num_tokens, cols], weight bf16 [rows, cols]. Row m of x
// is the weight's row n = m mod rows, backwards and with its second half negated. So out[m, n]
// would be zero without rounding. What is left of it are the rounding errors, which depend on the
// order of the sum, and which a bf16 output does not hide. Each pair of columns that cancels has
// its own power of two, so that sums are rounded even if the weight has few different values.
struct FillProbeArgs {
  uint16_t* x;
  const uint16_t* weight;
  int64_t num_tokens, rows, cols;
};
cudaError_t LaunchFillProbe(const FillProbeArgs& args, cudaStream_t stream);
// Adds the number of elements whose bits differ to *different.
struct CountDifferentArgs {
  const void* a;
  const void* b;
  int64_t count;
  bool bf16;  // a and b; else f32
  int32_t* different;
};
cudaError_t LaunchCountDifferent(const CountDifferentArgs& args, cudaStream_t stream);

// The sequences of a step, and one part of a layer's states. See StateBatch and StateLayerView.
struct StateArgs {
  float* first;  // of slot 0
  int64_t slot_stride;
  const int32_t* query_start_loc;
  const int32_t* seq_lens;
  const int32_t* slots;
  int64_t num_seqs;
};

// See CausalConv.
struct ConvArgs {
  const float* x;
  const float* weight;  // [kernel, channels]
  float* out;
  StateArgs states;
  int64_t channels, kernel, x_stride, out_stride;
};
cudaError_t LaunchCausalConv(const ConvArgs& args, cudaStream_t stream);

// See GatedDelta. Two kernels. q and k have one stride, as have a and b.
struct DeltaArgs {
  float* q;
  float* k;
  const float* v;
  float* a;
  float* b;
  const float* rate;
  const float* bias;
  float* out;
  StateArgs states;
  int64_t num_tokens, value_dim, qk_stride, v_stride, gate_stride, out_stride;
  int32_t key_heads, value_heads, key_dim;  // key_dim: at most kMaxDeltaKeyDim
  float eps, scale;                         // of the norm of q and k, and of q
  bool tiled;
};
cudaError_t LaunchGatedDelta(const DeltaArgs& args, cudaStream_t stream);

// See GateOutput. A warp per head of a token.
struct OutputGateArgs {
  const void* x;
  const void* gate;
  const float* norm;  // [head_dim], or null
  void* out;
  bool in_bf16, out_bf16;  // else f32
  bool silu;               // else sigmoid
  int64_t num_tokens, cols, head_dim, x_stride, gate_stride, out_stride;
  float eps;
};
cudaError_t LaunchGateOutput(const OutputGateArgs& args, cudaStream_t stream);

}  // namespace tokamak::cuda
