// The activation functions of GatedActivation and Activate, element by element.
#pragma once

#include "ops/activation.h"
#include "ops/cuda/device.cuh"

namespace tokamak::cuda {

// silu(x) = x / (1 + e^-x), or gelu_tanh(x) = x · ½ (1 + tanh(u)) = x / (1 + e^(-2u)), a form
// without cancellation.
inline __device__ float SiluOrGeluTanh(bool gelu_tanh, float x) {
  constexpr float kSqrt2OverPi = 0.79788456f;
  const float u = gelu_tanh ? 2.0f * kSqrt2OverPi * (x + 0.044715f * x * x * x) : x;
  return x / (1.0f + expf(-u));
}

// GatedActivation of two outputs of a product, which it rounds to bf16 first.
inline __device__ uint16_t GateSums(bool gelu_tanh, float gate, float up) {
  gate = BF16::Load(BF16::Store(gate));
  up = BF16::Load(BF16::Store(up));
  return BF16::Store(SiluOrGeluTanh(gelu_tanh, gate) * up);
}

// gelu(x) = x · Φ(x) = max(x, 0) - |x| / 2 · erfc(|x| / √2), without cancellation.
inline __device__ float Gelu(float x) {
  constexpr ErfcPolynomial kP;
  const float size = fabsf(x);
  const float t = 1.0f / fmaf(size, 0.353553391f, 1.0f);
  float p = kP.terms[0];
#pragma unroll
  for (int i = 1; i < 10; ++i) p = fmaf(p, t, kP.terms[i]);
  const float tail = p * t * expf(-0.5f * (x * x));
  return fmaf(-0.5f * size, tail, fmaxf(x, 0.0f));
}

// x · σ(1.702 x).
inline __device__ float QuickGelu(float x) { return x / (1.0f + expf(-1.702f * x)); }

// max(-limit, min(x, limit)). NaN stays NaN.
inline __device__ float Clamped(float x, float limit) {
  return x > limit ? limit : x < -limit ? -limit : x;
}

// With g = min(gate, limit) and u = up clamped to ±limit: g · σ(alpha · g) · (u + 1). NaN stays
// NaN.
inline __device__ float ClampedSwiglu(float gate, float up, float limit, float alpha) {
  const float g = gate > limit ? limit : gate;
  return g / (1.0f + expf(-alpha * g)) * (Clamped(up, limit) + 1.0f);
}

}  // namespace tokamak::cuda
