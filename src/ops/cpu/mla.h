// LatentAttention on the CPU, which decompresses keys and values for many tokens of a sequence.
#pragma once

#include "base/thread_pool.h"
#include "ops/cpu/isa.h"
#include "ops/ops.h"

namespace tokamak::cpu {

// `tiles` has kTileFloats per worker.
void AttendExpanded(const IsaKernels& isa, ThreadPool& pool, float* tiles,
                    const LatentAttention& op);

}  // namespace tokamak::cpu
