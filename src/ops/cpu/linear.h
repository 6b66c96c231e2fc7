// How a Linear is cut into work items on the CPU.
#pragma once

#include "base/thread_pool.h"
#include "ops/cpu/isa.h"
#include "ops/ops.h"

namespace tokamak::cpu {

// `tiles` is kTileFloats for each worker of the pool.
void RunLinear(const IsaKernels& isa, ThreadPool& pool, float* tiles, const Linear& op);

}  // namespace tokamak::cpu
