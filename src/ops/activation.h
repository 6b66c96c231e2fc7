// The activation functions of MLPs. The CPU backend's kernels, which are compiled for one ISA each,
// include this header, so it must have no functions.
#pragma once

namespace tokamak {

enum class Activation {
  kSilu,       // x · σ(x)
  kGeluTanh,   // x · (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2
  kGelu,       // x · Φ(x), Φ the normal distribution function; arXiv:1606.08415
  kQuickGelu,  // x · σ(1.702 x): CLIP; arXiv:1606.08415, section 2
  // gpt-oss, arXiv:2508.10925; gated only. With g = min(gate, limit) and u = up clamped to ±limit:
  // g · σ(alpha · g) · (u + 1).
  kClampedSwiglu,
};

// For kGelu: erfc(z) = e^(-z²) · t · P(t), t = 1 / (1 + z / 2), for z >= 0. P is the minimax
// polynomial of relative error 2.5e-8 on [0, 11], the highest degree first.
struct ErfcPolynomial {
  float terms[10] = {0.00943582f,  -0.10819256f, 0.39458718f, -0.62584718f, 0.3860517f,
                     -0.08032436f, 0.21967237f,  0.23982003f, 0.28272635f,  0.28207064f};
};

}  // namespace tokamak
