// The CPU backend. Weights stay in their stored precision. Products with quantized weights take
// activations in int8 (quant/activation_row.h) where the ISA has fast integer dot products, and
// those with BF16 weights activations in bf16 where it has dot products of that.
//
// Every result is the same bits for any number of threads, any number of rows in the call, and any
// company: a Linear output is one chain of additions over k (cpu/kernels.h), attention is cut at
// absolute positions.
//
// Owner: one thread, which works in the pool too.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/ops.h"

namespace tokamak {

struct CpuOptions {
  int threads = 0;  // the calling one included; 0: one per physical core
  // "auto" or one of CpuIsaNames(); with "/precise" behind it, all activations are f32.
  std::string isa = "auto";
  bool pin_threads = false;  // each compute thread to a physical core (base/thread_pool.h)
};

// kInvalidArgument for an unknown ISA or a bad number of threads, kUnimplemented with the missing
// features for an ISA that this machine cannot run.
Result<std::unique_ptr<Ops>> MakeCpuOps(const CpuOptions& options);

// Memory that the backend keeps for a weight.
int64_t CpuWeightBytes(const WeightSpec& spec);

// The ISAs of this build, slowest first, whether or not this machine can run them.
std::vector<std::string> CpuIsaNames();

}  // namespace tokamak
