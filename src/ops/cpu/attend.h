// Attention on the CPU: writing the KV cache and reading it.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/kernels.h"
#include "ops/ops.h"

namespace tokamak::cpu {

// RopeAndStore for one token.
void StoreToken(const Kernels& kernels, const RopeAndStore& op, int64_t token);

void Attend(const IsaKernels& isa, ThreadPool& pool, const Attention& op);

// LatentAttention, which decompresses keys and values for many tokens of a sequence. `tiles` has
// kTileFloats per worker.
void AttendExpanded(const IsaKernels& isa, ThreadPool& pool, float* tiles,
                    const LatentAttention& op);

}  // namespace tokamak::cpu
