// Which models the CUDA backend is too small for. The program asks before it reads a weight, the
// backend when it makes what depends on these sizes.
#pragma once

#include <algorithm>

#include "base/error.h"
#include "ops/attention.h"
#include "ops/cuda/limits.h"
#include "ops/gated_delta.h"

namespace tokamak {

inline Status CheckCudaAttention(const AttentionShape& shape) {
  if (shape.head_dim > cuda::kMaxHeadDim) {
    return Unimplemented("CUDA: attention with heads of {}; up to {} are supported", shape.head_dim,
                         cuda::kMaxHeadDim);
  }
  if (shape.ValueDim() > cuda::kMaxValueDim) {
    return Unimplemented("CUDA: attention with values of {}; up to {} are supported",
                         shape.ValueDim(), cuda::kMaxValueDim);
  }
  const LatentExpansion& e = shape.expansion;
  const int32_t key = shape.head_dim - shape.ValueDim() + e.nope_dim;
  // Models that decompress only long prompts absorb those that are too large for it.
  if (e.min_queries == 1 && std::max(key, e.value_dim) > cuda::kMaxExpandedDim) {
    return Unimplemented(
        "CUDA: latents that are decompressed to heads of {} and values of {}; up to {} are "
        "supported",
        key, e.value_dim, cuda::kMaxExpandedDim);
  }
  return Status();
}

inline Status CheckCudaState(const StateLayerSpec& spec) {
  if (spec.key_dim <= cuda::kMaxDeltaKeyDim) return Status();
  return Unimplemented("CUDA: gated delta nets with keys of {}; up to {} are supported",
                       spec.key_dim, cuda::kMaxDeltaKeyDim);
}

inline Status CheckCudaVocabulary(int64_t size) {
  if (size <= cuda::kMaxVocabulary) return Status();
  return Unimplemented("CUDA: a vocabulary of {}; up to {} are supported", size,
                       cuda::kMaxVocabulary);
}

}  // namespace tokamak
