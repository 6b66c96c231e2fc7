// Flags that several benchmarks share.
#pragma once

#include <string>

#include "cli/flags.h"
#include "cli/json_output.h"

namespace tokamak::cli {

// "LOW:HIGH" or one number, each at least 1. `range` holds the default.
void AddRange(Flags& flags, const std::string& name, TokenRange& range, const std::string& help);

}  // namespace tokamak::cli
