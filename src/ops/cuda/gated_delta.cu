// CausalConv, GatedDelta and GateOutput (ops/gated_delta.h). f32, but for GateOutput, whose inputs
// and outputs may be bf16; rows contiguous inside. All are dependents.
//
// The convolution and the delta rule go through a sequence's tokens in order, and what they keep of
// it is f32, so neither the cut into steps nor other sequences change a bit. Their grids depend on
// the number of sequences and on the model's shape alone.
//
// The convolution: a CTA has kChannels channels of one sequence. It writes the state after a
// barrier, when all of it has read the old one. Bound: x is read once from memory, and out written.
//
// The delta rule: one kernel normalizes queries and keys and computes the gates, in place. In the
// other, a warp has kColumns columns of a head's state S in registers, a quarter of the rows per
// lane. With S' = decay · S: delta = beta · (v - S'ᵀ k), S = S' + k deltaᵀ, and out = Sᵀ q, which
// is S'ᵀ q + (k · q) delta. So one reduction over the lanes of a column serves all three sums of a
// token. Bound for few tokens: S is read and written once. For many: the latency of a token.
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_as.cuh"
#include "ops/cuda/limits.h"
#include "ops/cuda/ptx.h"

namespace tokamak::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kChannels = kWarp;  // of a CTA of the convolution
// A CTA of the delta rule.
constexpr int kDeltaThreads = 128;
constexpr int kColumns = 8;               // of a warp
constexpr int kParts = kWarp / kColumns;  // lanes that share a column
constexpr int kCtaColumns = kDeltaThreads / kWarp * kColumns;

// The rows of one sequence, and its state.
struct SequenceRows {
  __device__ SequenceRows(const StateArgs& a, int64_t s)
      : begin(a.query_start_loc[s]),
        count(a.query_start_loc[s + 1] - begin),
        length(a.seq_lens[s]),
        state(a.first + a.slots[s] * a.slot_stride) {}

  __device__ bool is_padding() const { return count == 0 || length == 0; }
  // The state before the first row is 0.
  __device__ bool is_new() const { return length == count; }

  int64_t begin, count, length;
  float* state;
};

__global__ void __launch_bounds__(kThreads) CausalConvKernel(const ConvArgs a) {
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  const SequenceRows rows(a.states, blockIdx.y);
  if (rows.is_padding()) return;
  const int64_t c = int64_t{blockIdx.x} * kChannels + threadIdx.x % kChannels;
  const int64_t before = a.kernel - 1;  // inputs in the state
  const bool has_channel = c < a.channels;
  float* const state = rows.state + c;
  const float* const x = a.x + rows.begin * a.x_stride + c;
  const auto input = [&](int64_t t) {
    if (t >= 0) return x[t * a.x_stride];
    return rows.is_new() ? 0.0f : state[(before + t) * a.channels];
  };
  for (int64_t t = threadIdx.x / kChannels; has_channel && t < rows.count; t += kWarps) {
    float sum = 0;
    for (int64_t j = 0; j <= before; ++j) {
      sum = fmaf(a.weight[j * a.channels + c], input(t - before + j), sum);
    }
    a.out[(rows.begin + t) * a.out_stride + c] = sum / (1.0f + expf(-sum));
  }
  __syncthreads();
  if (!has_channel || threadIdx.x >= kChannels) return;
  // A row of the state moves to an earlier place, so ascending order overwrites nothing unread.
  for (int64_t j = 0; j < before; ++j) {
    state[j * a.channels] = input(rows.count - before + j);
  }
}

// log(1 + e^x), for large x as PyTorch does.
__device__ float Softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

// A CTA has a token: its heads of queries and keys, and its gates.
__global__ void __launch_bounds__(kThreads) PrepareDeltaKernel(const DeltaArgs a) {
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  const int64_t t = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  for (int head = warp; head < 2 * a.key_heads; head += kWarps) {
    const bool is_key = head >= a.key_heads;
    float* const row = (is_key ? a.k : a.q) + t * a.qk_stride +
                       int64_t{is_key ? head - a.key_heads : head} * a.key_dim;
    float squares = 0;
    for (int i = lane; i < a.key_dim; i += kWarp) squares = fmaf(row[i], row[i], squares);
    const float scale = (is_key ? 1.0f : a.scale) / sqrtf(WarpSum(squares) + a.eps);
    for (int i = lane; i < a.key_dim; i += kWarp) row[i] *= scale;
  }
  for (int head = static_cast<int>(threadIdx.x); head < a.value_heads; head += kThreads) {
    float& decay = a.a[t * a.gate_stride + head];
    float& beta = a.b[t * a.gate_stride + head];
    decay = expf(-a.rate[head] * Softplus(decay + a.bias[head]));
    beta = 1.0f / (1.0f + expf(-beta));
  }
}

// What a lane needs of one token: a quarter of the key and of the query, and its column's value.
template <int kRows>
struct DeltaToken {
  float k[kRows], q[kRows];
  float v, decay, beta;
};

// kRows: rows of S in a lane, a multiple of 4.
template <int kRows, bool kVectors>
class DeltaColumn {
 public:
  __device__ DeltaColumn(const DeltaArgs& args, const SequenceRows& rows, int64_t head)
      : a_(args),
        column_(int64_t{blockIdx.x} * kCtaColumns + threadIdx.x / kWarp * kColumns +
                threadIdx.x % kColumns),
        part_(static_cast<int>(threadIdx.x % kWarp) / kColumns),
        head_(head),
        key_head_(args.tiled ? head % args.key_heads : head / (args.value_heads / args.key_heads)),
        state_(rows.state + head * args.key_dim * args.value_dim + column_) {}

  __device__ bool exists() const { return column_ < a_.value_dim; }

  __device__ void Load(bool is_new) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = RowOf(i);
      const bool is_there = exists() && row < a_.key_dim && !is_new;
      s_[i] = is_there ? state_[int64_t{row} * a_.value_dim] : 0.0f;
    }
  }
  __device__ void Store() const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = RowOf(i);
      if (exists() && row < a_.key_dim) state_[int64_t{row} * a_.value_dim] = s_[i];
    }
  }

  __device__ void Read(int64_t token, DeltaToken<kRows>& to) const {
    const float* const k = a_.k + token * a_.qk_stride + key_head_ * a_.key_dim;
    const float* const q = a_.q + token * a_.qk_stride + key_head_ * a_.key_dim;
#pragma unroll
    for (int i = 0; i < kRows; i += 4) {
      ReadFour(k, RowOf(i), to.k + i);
      ReadFour(q, RowOf(i), to.q + i);
    }
    to.v = exists() ? a_.v[token * a_.v_stride + head_ * a_.value_dim + column_] : 0.0f;
    to.decay = a_.a[token * a_.gate_stride + head_];
    to.beta = a_.b[token * a_.gate_stride + head_];
  }

  __device__ void Apply(int64_t token, const DeltaToken<kRows>& x) {
    float by_k = 0, by_q = 0, kq = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      by_k = fmaf(x.k[i], s_[i], by_k);
      by_q = fmaf(x.q[i], s_[i], by_q);
      kq = fmaf(x.k[i], x.q[i], kq);
    }
    for (int distance = kColumns; distance < kWarp; distance *= 2) {
      by_k += __shfl_xor_sync(kAllLanes, by_k, distance);
      by_q += __shfl_xor_sync(kAllLanes, by_q, distance);
      kq += __shfl_xor_sync(kAllLanes, kq, distance);
    }
    const float delta = x.beta * (x.v - x.decay * by_k);
#pragma unroll
    for (int i = 0; i < kRows; ++i) s_[i] = fmaf(x.k[i], delta, x.decay * s_[i]);
    if (part_ == 0 && exists()) {
      a_.out[token * a_.out_stride + head_ * a_.value_dim + column_] =
          fmaf(kq, delta, x.decay * by_q);
    }
  }

 private:
  // Lanes of a column take turns, four rows at a time.
  __device__ int RowOf(int i) const { return i / 4 * 4 * kParts + part_ * 4 + i % 4; }
  __device__ void ReadFour(const float* row, int first, float* to) const {
    float four[4] = {};
    if (first < a_.key_dim) LoadFour<F32, kVectors>(row + first, a_.key_dim - first, four);
#pragma unroll
    for (int j = 0; j < 4; ++j) to[j] = four[j];
  }

  const DeltaArgs& a_;
  const int64_t column_;
  const int part_;
  const int64_t head_, key_head_;
  float* const state_;
  float s_[kRows];
};

template <int kRows, bool kVectors>
__global__ void __launch_bounds__(kDeltaThreads) DeltaKernel(const DeltaArgs a) {
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  const SequenceRows rows(a.states, blockIdx.z);
  if (rows.is_padding()) return;
  DeltaColumn<kRows, kVectors> column(a, rows, blockIdx.y);
  column.Load(rows.is_new());
  const int64_t end = rows.begin + rows.count;
  // Reads the next token ahead, unless that would not fit into registers.
  constexpr bool kAhead = kRows <= 32;
  DeltaToken<kRows> now, next;
  if constexpr (kAhead) column.Read(rows.begin, next);
  for (int64_t token = rows.begin; token < end; ++token) {
    if constexpr (kAhead) {
      now = next;
      if (token + 1 < end) column.Read(token + 1, next);
    } else {
      column.Read(token, now);
    }
    column.Apply(token, now);
  }
  column.Store();
}

// A warp has a head of a token.
template <typename In, typename Out, bool kVectors>
__global__ void __launch_bounds__(kThreads) GateOutputKernel(const OutputGateArgs a) {
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  const int64_t t = blockIdx.x;
  const int64_t first = (int64_t{blockIdx.y} * kWarps + threadIdx.x / kWarp) * a.head_dim;
  if (first >= a.cols) return;
  const int64_t cols = min(a.head_dim, a.cols - first);
  const auto* const x = static_cast<const typename In::Storage*>(a.x) + t * a.x_stride + first;
  const auto* const gate =
      static_cast<const typename In::Storage*>(a.gate) + t * a.gate_stride + first;
  auto* const out = static_cast<typename Out::Storage*>(a.out) + t * a.out_stride + first;
  const int64_t lane = threadIdx.x % kWarp;
  float values[4], gates[4], weight[4] = {1, 1, 1, 1};
  float scale = 1;
  if (a.norm != nullptr) {
    float squares = 0;
    for (int64_t i = lane * 4; i < cols; i += kWarp * 4) {
      LoadFour<In, kVectors>(x + i, cols - i, values);
#pragma unroll
      for (int j = 0; j < 4; ++j) squares = fmaf(values[j], values[j], squares);
    }
    scale = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(cols) + a.eps);
  }
  for (int64_t i = lane * 4; i < cols; i += kWarp * 4) {
    LoadFour<In, kVectors>(x + i, cols - i, values);
    LoadFour<In, kVectors>(gate + i, cols - i, gates);
    if (a.norm != nullptr) LoadFour<F32, kVectors>(a.norm + i, cols - i, weight);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float size = (a.silu ? gates[j] : 1.0f) / (1.0f + expf(-gates[j]));
      values[j] = values[j] * scale * weight[j] * size;
    }
    StoreFour<Out, kVectors>(values, cols - i, out + i);
  }
}

template <int kRows>
cudaError_t LaunchDelta(const DeltaArgs& args, cudaStream_t stream) {
  const bool vectors = args.key_dim % 4 == 0 && FitsFours(args.q, args.qk_stride, sizeof(float)) &&
                       FitsFours(args.k, args.qk_stride, sizeof(float));
  const auto kernel = vectors ? &DeltaKernel<kRows, true> : &DeltaKernel<kRows, false>;
  const dim3 grid(Grid(args.value_dim, kCtaColumns), static_cast<unsigned>(args.value_heads),
                  static_cast<unsigned>(args.states.num_seqs));
  return LaunchDependent(kernel, grid, kDeltaThreads, stream, args);
}

}  // namespace

cudaError_t LaunchCausalConv(const ConvArgs& args, cudaStream_t stream) {
  if (args.states.num_seqs * args.channels == 0) return cudaSuccess;
  const dim3 grid(Grid(args.channels, kChannels), static_cast<unsigned>(args.states.num_seqs));
  return LaunchDependent(&CausalConvKernel, grid, kThreads, stream, args);
}

cudaError_t LaunchGatedDelta(const DeltaArgs& args, cudaStream_t stream) {
  if (args.num_tokens * args.states.num_seqs == 0) return cudaSuccess;
  const cudaError_t error =
      LaunchDependent(&PrepareDeltaKernel, Grid(args.num_tokens, 1), kThreads, stream, args);
  if (error != cudaSuccess) return error;
  if (args.key_dim <= 16 * kParts) return LaunchDelta<16>(args, stream);
  if (args.key_dim <= 32 * kParts) return LaunchDelta<32>(args, stream);
  return LaunchDelta<kMaxDeltaKeyDim / kParts>(args, stream);
}

cudaError_t LaunchGateOutput(const OutputGateArgs& args, cudaStream_t stream) {
  if (args.num_tokens * args.cols == 0) return cudaSuccess;
  const size_t in = ElementBytes(args.in_bf16);
  const bool vectors = args.head_dim % 4 == 0 && args.cols % 4 == 0 &&
                       FitsFours(args.x, args.x_stride, in) &&
                       FitsFours(args.gate, args.gate_stride, in) &&
                       FitsFours(args.out, args.out_stride, ElementBytes(args.out_bf16));
  const dim3 grid(Grid(args.num_tokens, 1), Grid(args.cols, args.head_dim * kWarps));
  return LaunchAs(
      args.in_bf16, args.out_bf16, vectors, [&]<typename In, typename Out, bool kVectors>() {
        return LaunchDependent(&GateOutputKernel<In, Out, kVectors>, grid, kThreads, stream, args);
      });
}

}  // namespace tokamak::cuda
