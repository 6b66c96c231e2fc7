// One round of the proof: some requests alone, then the same ones in several companies.
#pragma once

#include <cstdint>
#include <string>

#include "invariance/counting_executor.h"

namespace tokamak::invariance {

struct RoundOptions {
  std::string model;
  std::string device = "cpu";  // or "cuda"
  std::string isa = "auto";    // of a CPU
  std::string salt;            // with `seed`, decides everything random
  uint64_t seed = 0;
  int32_t requests = 0;  // a quarter more come, to be cancelled
  bool tiny = true;      // of WriteTinyModel; else a real one, which gets text

  bool gpu() const { return device != "cpu"; }
};

// Alone, requests run without graphs and a step at a time. The companies are two, or on a GPU four:
// two without graphs, then two with. One of each two has one thread, and each three in a row have
// 1, 2 and 4 steps in flight. The first difference, with the circumstances and the request; empty
// if there is none.
std::string RunRound(const RoundOptions& options, Counts* counts);

}  // namespace tokamak::invariance
