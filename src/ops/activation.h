// The activation functions of MLPs. The CPU backend's kernels, which are compiled for one ISA each,
// include this header, so it must have no functions.
#pragma once

namespace tokamak {

enum class Activation {
  kSilu,      // x · σ(x)
  kGeluTanh,  // x · (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2
  kGelu,      // x · Φ(x), Φ the normal distribution function; arXiv:1606.08415
  // gpt-oss, arXiv:2508.10925; gated only. With g = min(gate, limit) and u = up clamped to ±limit:
  // g · σ(alpha · g) · (u + 1).
  kClampedSwiglu,
};

}  // namespace tokamak
