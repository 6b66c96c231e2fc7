// The table of functions for one set of SIMD primitives.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/kernels/attention.h"
#include "ops/cpu/kernels/elementwise.h"
#include "ops/cpu/kernels/gated_delta.h"
#include "ops/cpu/kernels/linear.h"
#include "ops/cpu/kernels/unpack.h"

namespace tokamak::cpu {

template <class V>
constexpr Kernels MakeKernels() {
  return {.linear = LinearKernel<V>::Run,
          .unpack = Unpack<V>::Run,
          .add_rms_norm = Elementwise<V>::AddRmsNorm,
          .add_layer_norm = Elementwise<V>::AddLayerNorm,
          .gate = Elementwise<V>::Gate,
          .rope = Elementwise<V>::Rope,
          .softcap = Elementwise<V>::Cap,
          .clamp = Elementwise<V>::Clamp,
          .convert = Elementwise<V>::Convert,
          .attend_split = AttentionKernel<V>::Run,
          .merge = AttentionKernel<V>::Merge,
          .finish_head = AttentionKernel<V>::Finish,
          .convolve = GatedDeltaKernels<V>::Convolve,
          .normalize_heads = GatedDeltaKernels<V>::NormalizeHeads,
          .delta = GatedDeltaKernels<V>::Delta,
          .gate_output = GatedDeltaKernels<V>::GateOutput};
}

}  // namespace tokamak::cpu
