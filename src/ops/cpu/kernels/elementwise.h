// Norms, activations, rotation and conversion: loops over rows, bound by memory.
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

  // Square roots are correctly rounded on every ISA.
  static float InverseRms(float squares, int64_t n, float eps) {
    return 1.0f / __builtin_sqrtf(squares / static_cast<float>(n) + eps);
  }

  // Σ map(x[i]), in the order of Lanes. Requires map(neutral) = 0.
  template <typename Map>
  static float Sum(const float* x, int64_t n, float neutral, Map map) {
    Lanes<V> sums;
    sums.Fill(0);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
      for (int v = 0; v < Lanes<V>::kVectors; ++v) {
        sums.v[v] = V::Add(sums.v[v], map(V::Load(x + i + v * kLanes)));
      }
    }
    if (i < n) {
      alignas(64) float rest[16];
      for (int64_t j = 0; j < 16; ++j) rest[j] = i + j < n ? x[i + j] : neutral;
      for (int v = 0; v < Lanes<V>::kVectors; ++v) {
        sums.v[v] = V::Add(sums.v[v], map(V::Load(rest + v * kLanes)));
      }
    }
    return sums.Sum();
  }

  static float SumOfSquares(const float* x, int64_t n) {
    return Sum(x, n, 0, [](F value) { return V::Mul(value, value); });
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

  // Adds x to a row of the residual, and returns the row.
  static float* AddToRow(const NormTask& task, int64_t row) {
    float* residual = task.residual + row * task.residual_stride;
    if (task.x == nullptr) return residual;
    const float* x = task.x + row * task.x_stride;
    int64_t i = 0;
    for (; i + kLanes <= task.cols; i += kLanes) {
      V::Store(residual + i, V::Add(V::Load(residual + i), V::Load(x + i)));
    }
    for (; i < task.cols; ++i) residual[i] += x[i];
    return residual;
  }

  static void AddRmsNorm(const NormTask& task) {
    for (int64_t row = 0; row < task.num_rows; ++row) {
      const float* residual = AddToRow(task, row);
      const float scale = InverseRms(SumOfSquares(residual, task.cols), task.cols, task.eps);
      Scale(residual, scale, task.weight, task.cols, task.out + row * task.out_stride);
    }
  }

  // Computes the variance from differences to the mean: a mean far from 0 cancels nothing.
  static void AddLayerNorm(const NormTask& task) {
    for (int64_t row = 0; row < task.num_rows; ++row) {
      const float* residual = AddToRow(task, row);
      const float sum = Sum(residual, task.cols, 0, [](F value) { return value; });
      const float mean = sum / static_cast<float>(task.cols);
      const F center = V::Broadcast(mean);
      const float squares = Sum(residual, task.cols, mean, [center](F value) {
        const F difference = V::Sub(value, center);
        return V::Mul(difference, difference);
      });
      const float scale = InverseRms(squares, task.cols, task.eps);
      float* out = task.out + row * task.out_stride;
      const auto normal = [&](F x, F weight) {
        return V::Mul(V::Mul(V::Sub(x, center), V::Broadcast(scale)), weight);
      };
      int64_t i = 0;
      for (; i + kLanes <= task.cols; i += kLanes) {
        const F value = normal(V::Load(residual + i), V::Load(task.weight + i));
        V::Store(out + i, task.bias != nullptr ? V::Add(value, V::Load(task.bias + i)) : value);
      }
      for (; i < task.cols; ++i) {
        const float value = (residual[i] - mean) * scale * task.weight[i];
        out[i] = task.bias != nullptr ? value + task.bias[i] : value;
      }
    }
  }

  // silu(x) = x / (1 + exp(-x)). gelu_tanh(x) = x / (1 + exp(-2u)), u = √(2/π) (x + 0.044715 x³),
  // because (1 + tanh u) / 2 is the logistic function of 2u.
  template <Activation kActivation>
  static F Activated(F x) {
    if constexpr (kActivation == Activation::kGelu) return Gelu(x);
    F exponent = V::Negate(x);
    if constexpr (kActivation == Activation::kGeluTanh) {
      const F cubed = V::Mul(V::Mul(x, x), x);
      const F inner = V::Add(x, V::Mul(V::Broadcast(0.044715f), cubed));
      exponent = V::Mul(V::Broadcast(-1.59576912f), inner);
    }
    if constexpr (kActivation == Activation::kQuickGelu) {
      exponent = V::Mul(V::Broadcast(1.702f), exponent);
    }
    const F divisor = V::Add(V::Broadcast(1.0f), Exp<V>(exponent));
    return V::Div(x, divisor);
  }

  // gelu(x) = x · Φ(x) = max(x, 0) - |x| / 2 · erfc(|x| / √2), without cancellation. z² is x² / 2,
  // so the exponent adds an error of x² half units.
  static F Gelu(F x) {
    const F one = V::Broadcast(1.0f), half = V::Broadcast(0.5f);
    const F size = V::Max(V::Negate(x), x);  // the second operand wins if it is NaN
    const F t = V::Div(one, V::Add(one, V::Mul(size, V::Broadcast(0.353553391f))));
    constexpr ErfcPolynomial kP;
    F p = V::Broadcast(kP.terms[0]);
    for (int i = 1; i < 10; ++i) p = V::Add(V::Mul(p, t), V::Broadcast(kP.terms[i]));
    const F power = Exp<V>(V::Negate(V::Mul(half, V::Mul(x, x))));
    const F tail = V::Mul(V::Mul(p, t), power);
    return V::Sub(V::Max(V::Zero(), x), V::Mul(V::Mul(half, size), tail));
  }

  // out[i] = map(gate[i], up[i]).
  template <typename Map>
  static void MapRows(const GateTask& task, Map map) {
    for (int64_t row = 0; row < task.num_rows; ++row) {
      const float* gate = task.gate + row * task.in_stride;
      const float* up = task.up != nullptr ? task.up + row * task.in_stride : gate;
      float* out = task.out + row * task.out_stride;
      int64_t i = 0;
      for (; i + kLanes <= task.cols; i += kLanes) {
        V::Store(out + i, map(V::Load(gate + i), V::Load(up + i)));
      }
      if (const int64_t rest = task.cols - i; rest > 0) {
        StorePart<V>(out + i, rest, map(LoadPart<V>(gate + i, rest), LoadPart<V>(up + i, rest)));
      }
    }
  }

  template <Activation kActivation>
  static void GateRows(const GateTask& task) {
    if (task.up == nullptr) {
      MapRows(task, [](F x, F) { return Activated<kActivation>(x); });
    } else {
      MapRows(task, [](F gate, F up) { return V::Mul(Activated<kActivation>(gate), up); });
    }
  }

  static void ClampedSwiglu(const GateTask& task) {
    const F limit = V::Broadcast(task.limit), least = V::Broadcast(-task.limit);
    const F alpha = V::Broadcast(-task.alpha), one = V::Broadcast(1.0f);
    MapRows(task, [=](F gate, F up) {
      const F g = V::Min(limit, gate), u = V::Max(least, V::Min(limit, up));
      const F glu = V::Div(g, V::Add(one, Exp<V>(V::Mul(alpha, g))));
      return V::Mul(V::Add(u, one), glu);
    });
  }

  static void Gate(const GateTask& task) {
    switch (task.activation) {
      case Activation::kSilu:
        return GateRows<Activation::kSilu>(task);
      case Activation::kGeluTanh:
        return GateRows<Activation::kGeluTanh>(task);
      case Activation::kGelu:
        return GateRows<Activation::kGelu>(task);
      case Activation::kQuickGelu:
        return GateRows<Activation::kQuickGelu>(task);
      case Activation::kClampedSwiglu:
        return ClampedSwiglu(task);
    }
  }

  // x[i] = map(x[i]).
  template <typename Map>
  static void MapInPlace(float* x, int64_t n, Map map) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) V::Store(x + i, map(V::Load(x + i)));
    if (i < n) StorePart<V>(x + i, n - i, map(LoadPart<V>(x + i, n - i)));
  }

  static void Cap(float* x, int64_t n, float cap) {
    const F scale = V::Broadcast(cap), inverse = V::Broadcast(1.0f / cap);
    MapInPlace(x, n, [=](F v) { return V::Mul(scale, Tanh<V>(V::Mul(v, inverse))); });
  }

  static void Clamp(float* x, int64_t n, float limit) {
    const F most = V::Broadcast(limit), least = V::Broadcast(-limit);
    MapInPlace(x, n, [=](F v) { return V::Max(least, V::Min(most, v)); });
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
    const float rotated = a * c - b * s;
    b = b * c + a * s;
    a = rotated;
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
    } else if (dtype == DType::kF8E4M3) {
      QuantizeRowE4m3<V>(source, n, destination);
    } else if (dtype == DType::kQ8_0) {
      QuantizeRowQ8_0<V>(source, n, destination);
    } else {
      __builtin_memcpy(destination, source, static_cast<size_t>(n) * sizeof(float));
    }
  }
};

}  // namespace tokamak::cpu
