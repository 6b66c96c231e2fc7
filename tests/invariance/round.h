// One round of the proof: some requests alone, then the same ones in several companies.
#pragma once

#include <cstdint>
#include <string>

#include "invariance/counting_executor.h"

namespace tokamak::invariance {

struct RoundOptions {
  std::string model;
  std::string isa;
  std::string salt;  // with `seed`, decides everything random
  uint64_t seed = 0;
  int32_t requests = 0;   // a quarter more come, to be cancelled
  int32_t companies = 2;  // the first has one thread, the second two, and so on
  bool tiny = true;       // of WriteTinyModel; else a real one, which gets text
};

// The first difference, with the circumstances and the request; empty if there is none.
std::string RunRound(const RoundOptions& options, Counts* counts);

}  // namespace tokamak::invariance
