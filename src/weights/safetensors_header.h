// The JSON header of a safetensors file. Internal to weights/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/dtype.h"
#include "tokamak/status.h"

namespace tokamak {

// A type of the format, readable by this build or not.
struct SafetensorsType {
  std::string_view name;
  int bytes;                   // per element
  std::optional<DType> dtype;  // absent: can be listed but not computed with
};
// Null for an unknown name, and for types that pack several elements into a byte.
const SafetensorsType* FindSafetensorsType(std::string_view name);

struct SafetensorsHeader {
  struct Entry {
    std::string name;
    std::string dtype;
    std::vector<uint64_t> shape;
    uint64_t begin = 0, end = 0;  // relative to the start of the data
  };
  std::vector<Entry> entries;
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Checks only the form: every entry has exactly a type, a shape and two offsets, and names are
// distinct. The caller has checked the size. `source` names the file in messages.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, const std::string& source);

}  // namespace tokamak
