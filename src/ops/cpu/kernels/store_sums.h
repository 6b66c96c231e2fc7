// The end of a Linear: stores the sums of whole panels, without those of padding rows.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/panel_layout.h"

namespace tokamak::cpu {

// The first n < V::kLanes sums of StoreLanes.
template <class V>
[[gnu::noinline]] void StoreFewLanes(const float* bias, int64_t n, const float* sums, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = bias != nullptr ? sums[i] + bias[i] : sums[i];
}

// Adds the bias to V::kLanes sums of a token, and stores those that are outputs.
template <class V>
[[gnu::always_inline]] inline void StoreLanes(const LinearTask& task, int64_t token, int64_t output,
                                              typename V::F sum) {
  const int64_t n = task.num_outputs - output;
  const float* bias = task.bias != nullptr ? task.bias + output : nullptr;
  float* out = task.out + token * task.out_stride + output;
  if (n >= V::kLanes) {
    if (bias != nullptr) sum = V::Add(sum, V::Load(bias));
    V::Store(out, sum);
  } else {
    alignas(64) float lanes[V::kLanes];
    V::Store(lanes, sum);
    StoreFewLanes<V>(bias, n, lanes, out);
  }
}

// Adds the bias to sums [num_panels][token_stride][16] of the task's first `count` tokens, and
// stores them.
template <class V>
void StoreSums(const LinearTask& task, int64_t count, int64_t token_stride, const float* sums) {
  for (int64_t t = 0; t < count; ++t) {
    for (int64_t p = 0; p < task.num_panels; ++p) {
      const float* sum = sums + (p * token_stride + t) * kPanelRows;
      for (int i = 0; i < kPanelRows; i += V::kLanes) {
        StoreLanes<V>(task, t, p * kPanelRows + i, V::Load(sum + i));
      }
    }
  }
}

}  // namespace tokamak::cpu
