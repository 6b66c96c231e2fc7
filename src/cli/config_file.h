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
// The value is the rest of the line without surrounding blanks, taken literally; if it begins with
// a double quote, it is a JSON string. A name alone turns a flag on. Errors are kInvalidArgument
// and name the line.
Result<std::vector<ConfigEntry>> ParseConfig(std::string_view text);

}  // namespace tokamak::cli
