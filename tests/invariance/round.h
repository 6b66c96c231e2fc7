// One round: runs some requests alone, then the same ones in several mixes.
#pragma once

#include <cstdint>
#include <string>

#include "invariance/counting_executor.h"
#include "tokamak/option_values.h"

namespace tokamak::invariance {

struct RoundOptions {
  std::string model;
  std::string other_model;                         // with the same vocabulary, to draft; or empty
  std::string device = "cpu";                      // or "cuda"
  std::string isa = "auto";                        // for the CPU
  KernelChoice kernels = KernelChoice::kVerified;  // for the GPU
  std::string salt;                                // with `seed`, decides everything random
  uint64_t seed = 0;
  int32_t requests = 0;  // plus a quarter more that are cancelled
  bool tiny = true;      // a model from WriteTinyModel; otherwise a real one, which gets text

  bool gpu() const { return device != "cpu"; }
};

// Alone, requests run without graphs, one step at a time. There are two mixes without graphs and,
// on a GPU, two more with graphs. Mixes have one thread and two in turn, and 1, 2 and 4 steps in
// flight in turn. Returns the first difference with its circumstances and request, or "".
std::string RunRound(const RoundOptions& options, Counts* counts);

}  // namespace tokamak::invariance
