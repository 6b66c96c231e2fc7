// Files of flags, for --config.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokamak/status.h"

namespace tokamak::cli {

struct ConfigEntry {
  int line = 0;
  std::vector<std::string> section;  // {"bench", "latency"} below [bench latency]
  std::string name;                  // without dashes
  std::string value;
};

// Reads
//   # a comment
//   [run]
//   temperature = 0.5
//   stop = [b], as it is
//   system = "two\nlines"
//   json
// A value is the rest of its line without the blanks around it, whatever it holds; one that begins
// with a double quote is a JSON string instead. A name alone switches a flag on. kInvalidArgument
// names the line.
Result<std::vector<ConfigEntry>> ParseConfig(std::string_view text);

}  // namespace tokamak::cli
