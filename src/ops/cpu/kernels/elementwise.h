// Norm, activation, rotation and conversion: streams of rows, bound by memory.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/kernels/exp.h"
#include "ops/cpu/kernels/lanes.h"
#include "ops/cpu/kernels/quantize_row.h"

namespace tokamak::cpu {

template <class V>
struct Elementwise {
  using F = typename V::F;
  static constexpr int kLanes = V::kLanes;

  // Square roots are rounded correctly everywhere.
  static float InverseRms(float squares, int64_t n, float eps) {
    return 1.0f / __builtin_sqrtf(squares / static_cast<float>(n) + eps);
  }

  // Σ x², in the order of Lanes.
  static float SumOfSquares(const float* x, int64_t n) {
    Lanes<V> sums;
    sums.Fill(0);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
      for (int v = 0; v < Lanes<V>::kVectors; ++v) {
        const F value = V::Load(x + i + v * kLanes);
        sums.v[v] = V::Add(sums.v[v], V::Mul(value, value));
      }
    }
    if (i < n) {
      alignas(64) float rest[16] = {};
      for (int64_t j = 0; i + j < n; ++j) rest[j] = x[i + j];
      for (int v = 0; v < Lanes<V>::kVectors; ++v) {
        const F value = V::Load(rest + v * kLanes);
        sums.v[v] = V::Add(sums.v[v], V::Mul(value, value));
      }
    }
    return sums.Sum();
  }

  // out = (x · scale) · weight.
  static void Scale(const float* x, float scale, const float* weight, int64_t n, float* out) {
    const F factor = V::Broadcast(scale);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      V::Store(out + i, V::Mul(V::Mul(V::Load(x + i), factor), V::Load(weight + i)));
    }
    for (; i < n; ++i) out[i] = x[i] * scale * weight[i];
  }

  static void AddRmsNorm(const NormTask& task) {
    for (int64_t row = 0; row < task.num_rows; ++row) {
      float* residual = task.residual + row * task.residual_stride;
      if (task.x != nullptr) {
        const float* x = task.x + row * task.x_stride;
        int64_t i = 0;
        for (; i + kLanes <= task.cols; i += kLanes) {
          V::Store(residual + i, V::Add(V::Load(residual + i), V::Load(x + i)));
        }
        for (; i < task.cols; ++i) residual[i] += x[i];
      }
      const float scale = InverseRms(SumOfSquares(residual, task.cols), task.cols, task.eps);
      Scale(residual, scale, task.weight, task.cols, task.out + row * task.out_stride);
    }
  }

  // silu(x) = x / (1 + exp(-x)). gelu_tanh(x) = x / (1 + exp(-2u)), u = √(2/π) (x + 0.044715 x³),
  // because (1 + tanh u) / 2 is the logistic function of 2u.
  template <GateKind kKind>
  static F Activate(F x, F up) {
    F exponent = V::Negate(x);
    if constexpr (kKind == GateKind::kGeluTanh) {
      const F cubed = V::Mul(V::Mul(x, x), x);
      const F inner = V::Add(x, V::Mul(V::Broadcast(0.044715f), cubed));
      exponent = V::Mul(V::Broadcast(-1.59576912f), inner);
    }
    const F divisor = V::Add(V::Broadcast(1.0f), Exp<V>(exponent));
    return V::Mul(V::Div(x, divisor), up);
  }

  template <GateKind kKind>
  static void GateRows(const GateTask& task) {
    for (int64_t row = 0; row < task.num_rows; ++row) {
      const float* gate = task.gate + row * task.in_stride;
      const float* up = task.up + row * task.in_stride;
      float* out = task.out + row * task.out_stride;
      int64_t i = 0;
      for (; i + kLanes <= task.cols; i += kLanes) {
        V::Store(out + i, Activate<kKind>(V::Load(gate + i), V::Load(up + i)));
      }
      if (const int64_t rest = task.cols - i; rest > 0) {
        StorePart<V>(out + i, rest,
                     Activate<kKind>(LoadPart<V>(gate + i, rest), LoadPart<V>(up + i, rest)));
      }
    }
  }

  static void Gate(const GateTask& task) {
    switch (task.kind) {
      case GateKind::kSilu:
        return GateRows<GateKind::kSilu>(task);
      case GateKind::kGeluTanh:
        return GateRows<GateKind::kGeluTanh>(task);
    }
  }

  static void Rope(const RopeTask& task) {
    for (int h = 0; h < task.num_heads; ++h) {
      float* head = task.heads + static_cast<int64_t>(h) * task.head_dim;
      if (task.norm != nullptr) {
        const float squares = SumOfSquares(head, task.head_dim);
        Scale(head, InverseRms(squares, task.head_dim, task.norm_eps), task.norm, task.head_dim,
              head);
      }
      if (task.cosines == nullptr) continue;
      if (task.half_split) {
        RotateHalves(head, task);
      } else {
        RotatePairs(head, task);
      }
    }
  }

  static void RotateHalves(float* head, const RopeTask& task) {
    const int half = task.rotary_dim / 2;
    int i = 0;
    for (; i + kLanes <= half; i += kLanes) {
      const F c = V::Load(task.cosines + i), s = V::Load(task.sines + i);
      const F a = V::Load(head + i), b = V::Load(head + half + i);
      V::Store(head + i, V::Sub(V::Mul(a, c), V::Mul(b, s)));
      V::Store(head + half + i, V::Add(V::Mul(b, c), V::Mul(a, s)));
    }
    for (; i < half; ++i) Rotate(head[i], head[half + i], task.cosines[i], task.sines[i]);
  }

  static void RotatePairs(float* head, const RopeTask& task) {
    for (int i = 0; i < task.rotary_dim / 2; ++i) {
      Rotate(head[2 * i], head[2 * i + 1], task.cosines[i], task.sines[i]);
    }
  }

  static void Rotate(float& a, float& b, float c, float s) {
    const float turned = a * c - b * s;
    b = b * c + a * s;
    a = turned;
  }

  template <typename Write>
  static void ConvertTo16(const float* source, int64_t n, std::byte* destination, Write write) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) write(destination + 2 * i, V::Load(source + i));
    if (i < n) {
      alignas(64) std::byte buffer[32];
      write(buffer, LoadPart<V>(source + i, n - i));
      __builtin_memcpy(destination + 2 * i, buffer, static_cast<size_t>(2 * (n - i)));
    }
  }

  static void Convert(DType dtype, const float* source, int64_t n, std::byte* destination) {
    if (dtype == DType::kF16) {
      ConvertTo16(source, n, destination, V::StoreHalf);
    } else if (dtype == DType::kBF16) {
      ConvertTo16(source, n, destination, V::StoreBFloat16);
    } else if (dtype == DType::kQ8_0) {
      QuantizeRowQ8_0<V>(source, n, destination);
    } else {
      __builtin_memcpy(destination, source, static_cast<size_t>(n) * sizeof(float));
    }
  }
};

}  // namespace tokamak::cpu
