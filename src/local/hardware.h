// Peak speeds and memory of the devices for which people plan.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokamak/engine.h"

namespace tokamak {

struct Hardware {
  std::string name;  // "NVIDIA H200", or this machine's backend: "cpu/avx512vnni"
  bool gpu = false;
  int64_t memory_bytes = 0;   // available to a model
  double memory_gb_s = 0;     // reading weights and cache
  double gmac_s = 0;          // multiplying, in the type `multiplies_in`
  std::string multiplies_in;  // "bf16", "int8", "f32"
};

// Finds a GPU by its short name ("h200"), with its data sheet's numbers, or measures this machine
// for "cpu" and "auto", which takes about half a second. `quantized`: whether the model's weights
// are. Other names are kInvalidArgument, with the known ones.
Result<Hardware> FindHardware(const EngineOptions& options, bool quantized, int64_t weight_bytes);

// Short names: h200, h100, ...
std::vector<std::string_view> KnownHardware();

}  // namespace tokamak
