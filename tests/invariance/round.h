// One round: runs some requests alone, then the same ones in several mixes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "invariance/counting_executor.h"
#include "tokamak/option_values.h"

namespace tokamak::invariance {

// A way to guess tokens, for a mix that does nothing else.
struct DraftMix {
  enum class Method {
    kText,    // what followed the same tokens earlier
    kModel,   // by the model itself and by another one, in turn
    kForced,  // text that grammars force
  };
  Method method = Method::kText;
  int32_t steps_in_flight = 1;
};

struct RoundOptions {
  std::string model;
  std::string other_model;                         // with the same vocabulary, to draft; or empty
  std::string device = "cpu";                      // or "cuda"
  std::string isa = "auto";                        // for the CPU
  KernelChoice kernels = KernelChoice::kVerified;  // for the GPU
  std::string salt;                                // with `seed`, decides everything random
  uint64_t seed = 0;
  int32_t requests = 0;  // plus a quarter more that are cancelled
  // Of the model: cache groups, and the least that max_batch_tokens may be.
  int32_t cache_groups = 1;
  int32_t least_batch_tokens = 0;
  bool states = false;  // the model keeps them: no mix has drafts or a host tier
  bool tiny = true;     // a model from WriteTinyModel; otherwise a real one, which gets text
  std::vector<DraftMix> draft_mixes = {};  // if there are any, these are the mixes

  bool gpu() const { return device != "cpu"; }
};

// Alone, requests run without graphs, one step at a time. There are two mixes without graphs and,
// on a GPU, two more with graphs. Mixes have one thread and two in turn, and 1, 2 and 4 steps in
// flight in turn. With draft_mixes there are these instead, without graphs. Returns the first
// difference with its circumstances and request, or "". Adds to `counts`, which has one for each of
// draft_mixes, or one for all mixes.
std::string RunRound(const RoundOptions& options, std::vector<Counts>* counts);

}  // namespace tokamak::invariance
