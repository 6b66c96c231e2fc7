// The CPU backend. Weights stay in their stored precision. Activations are int8
// (quant/activation_row.h) for quantized weights if the ISA has fast integer dot products, and bf16
// for BF16 weights if it has bf16 dot products.
//
// Results have the same bits for any number of threads and any other rows in the batch: a Linear
// output is one chain of additions over k (cpu/kernels.h), and attention is cut at absolute
// positions.
//
// Owner: one thread, which also works in the pool.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/host/communicator.h"
#include "ops/ops.h"

namespace tokamak {

class ThreadPool;

struct CpuOptions {
  int threads = 0;  // including the calling one; 0: one per physical core
  // "auto" or one of CpuIsaNames(). The suffix "/precise" makes all activations f32.
  std::string isa = "auto";
  bool pin_threads = false;  // pins each compute thread to a physical core (base/thread_pool.h)
  // Used instead of threads of its own, and of the two options above that describe those. Must
  // outlive the backend.
  ThreadPool* pool = nullptr;
  // Set if the backend is one of several ranks.
  std::shared_ptr<Communicator> communicator = nullptr;
};

// Returns kInvalidArgument for an unknown ISA or a bad number of threads, kUnimplemented with the
// missing features for an ISA that this machine cannot run.
Result<std::unique_ptr<Ops>> MakeCpuOps(const CpuOptions& options);

// Bytes that the backend keeps for a weight.
int64_t CpuWeightBytes(const WeightSpec& spec);

// The ISAs of this build, slowest first, whether or not this machine can run them.
std::vector<std::string> CpuIsaNames();

}  // namespace tokamak
