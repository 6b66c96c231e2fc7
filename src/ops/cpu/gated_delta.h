// Causal convolutions and the gated delta rule on the CPU.
#pragma once

#include "base/thread_pool.h"
#include "ops/cpu/isa.h"
#include "ops/ops.h"

namespace tokamak::cpu {

void RunCausalConv(const Kernels& kernels, ThreadPool& pool, const CausalConv& op);
// Requires PrepareDelta of all tokens.
void RunGatedDelta(const Kernels& kernels, ThreadPool& pool, const GatedDelta& op);
// Normalizes a token's queries and keys, and turns a into its decays and b into its betas.
void PrepareDelta(const Kernels& kernels, const GatedDelta& op, int64_t token);

}  // namespace tokamak::cpu
