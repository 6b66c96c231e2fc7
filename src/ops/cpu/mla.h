// LatentAttention on the CPU: attention of many tokens of a sequence, to keys and values that are
// decompressed for them.
#pragma once

#include "base/thread_pool.h"
#include "ops/cpu/isa.h"
#include "ops/ops.h"

namespace tokamak::cpu {

// `tiles` is kTileFloats per worker.
void AttendExpanded(const IsaKernels& isa, ThreadPool& pool, float* tiles,
                    const LatentAttention& op);

}  // namespace tokamak::cpu
