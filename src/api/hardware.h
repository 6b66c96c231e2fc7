// What the devices that people plan for can do at most.
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
  int64_t memory_bytes = 0;   // that a model may use
  double memory_gb_s = 0;     // reading weights and the cache
  double gmac_s = 0;          // multiplying, in the type that the backend multiplies in
  std::string multiplies_in;  // "bf16", "int8", "f32"
};

// A GPU by its short name ("h200"), from its maker's data sheet, or this machine for "cpu" and
// "auto", measured: that takes about half a second. `quantized`: whether the model's weights are.
// kInvalidArgument, with the names that are known, for another one.
Result<Hardware> FindHardware(const EngineOptions& options, bool quantized, int64_t weight_bytes);

// Short names: h200, h100, ...
std::vector<std::string_view> KnownHardware();

}  // namespace tokamak
