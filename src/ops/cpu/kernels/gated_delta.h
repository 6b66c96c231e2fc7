// Causal convolutions, the gated delta rule and gates of outputs. Only whole vectors of columns are
// multiplied and added, always in the same order, so that a column's bits depend neither on how
// many columns an item has nor on how a sequence is cut into steps.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/kernels/elementwise.h"
#include "ops/cpu/kernels/exp.h"
#include "ops/cpu/kernels/lanes.h"

namespace tokamak::cpu {

// `kVectors` vectors of neighbouring columns; if kPart, a single one of which only `n` are there.
template <class V, int kVectors, bool kPart>
struct ColumnBlock {
  using F = typename V::F;

  static void Load(const float* source, int64_t n, F (&values)[kVectors]) {
    if constexpr (kPart) {
      values[0] = LoadPart<V>(source, n);
    } else {
      for (int i = 0; i < kVectors; ++i) values[i] = V::Load(source + i * V::kLanes);
    }
  }
  static void Store(float* destination, int64_t n, const F (&values)[kVectors]) {
    if constexpr (kPart) {
      StorePart<V>(destination, n, values[0]);
    } else {
      for (int i = 0; i < kVectors; ++i) V::Store(destination + i * V::kLanes, values[i]);
    }
  }
};

template <class V>
struct GatedDeltaKernels {
  using F = typename V::F;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kVectors = kDeltaColumns / kLanes;

  // Calls run.template operator()<kVectors, kPart>(first column, columns) for all columns.
  template <typename Run>
  static void ForEachBlock(int64_t columns, Run run) {
    int64_t c = 0;
    for (; c + kDeltaColumns <= columns; c += kDeltaColumns) {
      run.template operator()<kVectors, false>(c, kDeltaColumns);
    }
    for (; c + kLanes <= columns; c += kLanes) run.template operator()<1, false>(c, kLanes);
    if (c < columns) run.template operator()<1, true>(c, columns - c);
  }

  // Row `token` of a convolution's inputs: those before the step are in the state.
  static const float* InputRow(const ConvTask& task, int64_t token) {
    return token >= 0 ? task.x + token * task.x_stride
                      : task.state + (task.kernel - 1 + token) * task.state_stride;
  }

  static void Convolve(const ConvTask& task) {
    for (int64_t t = 0; t < task.num_tokens; ++t) {
      const int64_t first = t - (task.kernel - 1);
      float* const out = task.out + t * task.out_stride;
      ForEachBlock(task.channels, [&]<int kN, bool kPart>(int64_t c, int64_t n) {
        using Block = ColumnBlock<V, kN, kPart>;
        F sums[kN];
        for (F& sum : sums) sum = V::Zero();
        for (int j = 0; j < task.kernel; ++j) {
          F weights[kN], inputs[kN];
          Block::Load(task.weight + j * task.weight_stride + c, n, weights);
          Block::Load(InputRow(task, first + j) + c, n, inputs);
          for (int i = 0; i < kN; ++i) sums[i] = V::Fma(weights[i], inputs[i], sums[i]);
        }
        for (F& sum : sums) {
          sum = Elementwise<V>::template Activated<Activation::kSilu>(sum);
        }
        Block::Store(out + c, n, sums);
      });
    }
    // A row of the state moves to an earlier place, so ascending order overwrites nothing unread.
    for (int i = 0; i + 1 < task.kernel; ++i) {
      const float* const row = InputRow(task, task.num_tokens - (task.kernel - 1) + i);
      for (int64_t c = 0; c < task.channels; ++c) task.state[i * task.state_stride + c] = row[c];
    }
  }

  // x = x · scale / sqrt(Σ x² + eps) for each head.
  static void NormalizeHeads(float* heads, int num_heads, int head_dim, float eps, float scale) {
    for (int h = 0; h < num_heads; ++h, heads += head_dim) {
      const float squares = Elementwise<V>::SumOfSquares(heads, head_dim);
      const F factor = V::Broadcast(scale / __builtin_sqrtf(squares + eps));
      Elementwise<V>::MapInPlace(heads, head_dim, [=](F value) { return V::Mul(value, factor); });
    }
  }

  static float Dot(const float* a, const float* b, int64_t n) {
    Lanes<V> sums;
    sums.Fill(0);
    for (int64_t i = 0; i < n; i += 16) {
      for (int v = 0; v < Lanes<V>::kVectors; ++v) {
        const int64_t at = i + v * kLanes, left = n - at;
        if (left <= 0) break;
        const bool whole = left >= kLanes;
        const F x = whole ? V::Load(a + at) : LoadPart<V>(a + at, left);
        const F y = whole ? V::Load(b + at) : LoadPart<V>(b + at, left);
        sums.v[v] = V::Fma(x, y, sums.v[v]);
      }
    }
    return sums.Sum();
  }

  static void Delta(const DeltaTask& task) {
    ForEachBlock(task.columns, [&]<int kN, bool kPart>(int64_t c, int64_t n) {
      DeltaBlock<kN, kPart>(task, c, n);
    });
  }

  // Columns of S. With S' = decay · S: delta = beta · (v - S'ᵀ k), S = S' + k deltaᵀ, out = Sᵀ q,
  // which is S'ᵀ q + (k · q) delta. Both products with the next token's k and q are summed up while
  // this token's update passes over S, so S is read and written once per token.
  template <int kN, bool kPart>
  static void DeltaBlock(const DeltaTask& task, int64_t c, int64_t n) {
    using Block = ColumnBlock<V, kN, kPart>;
    F by_k[kN], by_q[kN];  // Sᵀ k and Sᵀ q
    const auto clear = [&] {
      for (int i = 0; i < kN; ++i) by_k[i] = by_q[i] = V::Zero();
    };
    const auto add = [&](float k, float q, const F(&row)[kN]) {
      for (int i = 0; i < kN; ++i) {
        by_k[i] = V::Fma(V::Broadcast(k), row[i], by_k[i]);
        by_q[i] = V::Fma(V::Broadcast(q), row[i], by_q[i]);
      }
    };
    clear();
    for (int r = 0; r < task.key_dim; ++r) {
      F row[kN];
      Block::Load(task.state + r * task.state_stride + c, n, row);
      add(task.k[r], task.q[r], row);
    }
    for (int64_t t = 0; t < task.num_tokens; ++t) {
      const float* const k = task.k + t * task.qk_stride;
      const float* const q = task.q + t * task.qk_stride;
      const F decay = V::Broadcast(task.decay[t * task.gate_stride]);
      const F beta = V::Broadcast(task.beta[t * task.gate_stride]);
      const F kq = V::Broadcast(Dot(k, q, task.key_dim));
      F delta[kN], out[kN];
      Block::Load(task.v + t * task.v_stride + c, n, delta);
      for (int i = 0; i < kN; ++i) {
        delta[i] = V::Mul(beta, V::Sub(delta[i], V::Mul(decay, by_k[i])));
        out[i] = V::Fma(kq, delta[i], V::Mul(decay, by_q[i]));
      }
      Block::Store(task.out + t * task.out_stride + c, n, out);
      const bool last = t + 1 == task.num_tokens;
      clear();
      for (int r = 0; r < task.key_dim; ++r) {
        float* const stored = task.state + r * task.state_stride + c;
        F row[kN];
        Block::Load(stored, n, row);
        const F size = V::Broadcast(k[r]);
        for (int i = 0; i < kN; ++i) row[i] = V::Fma(size, delta[i], V::Mul(decay, row[i]));
        Block::Store(stored, n, row);
        if (!last) add(k[task.qk_stride + r], q[task.qk_stride + r], row);
      }
    }
  }

  static F Gate(bool silu, F gate) {
    const F divisor = V::Add(V::Broadcast(1.0f), Exp<V>(V::Negate(gate)));
    return V::Div(silu ? gate : V::Broadcast(1.0f), divisor);
  }

  static void GateOutput(const OutputGateTask& task) {
    for (int64_t row = 0; row < task.num_rows; ++row) {
      const float* x = task.x + row * task.x_stride;
      const float* const gate = task.gate + row * task.gate_stride;
      float* const out = task.out + row * task.out_stride;
      if (task.norm != nullptr) {
        for (int64_t i = 0; i < task.cols; i += task.head_dim) {
          const float squares = Elementwise<V>::SumOfSquares(x + i, task.head_dim);
          Elementwise<V>::Scale(x + i, Elementwise<V>::InverseRms(squares, task.head_dim, task.eps),
                                task.norm, task.head_dim, out + i);
        }
        x = out;
      }
      ForEachBlock(task.cols, [&]<int kN, bool kPart>(int64_t c, int64_t n) {
        using Block = ColumnBlock<V, kN, kPart>;
        F values[kN], gates[kN];
        Block::Load(x + c, n, values);
        Block::Load(gate + c, n, gates);
        for (int i = 0; i < kN; ++i) values[i] = V::Mul(values[i], Gate(task.silu, gates[i]));
        Block::Store(out + c, n, values);
      });
    }
  }
};

}  // namespace tokamak::cpu
