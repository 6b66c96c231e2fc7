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

// A type that the format has, readable by this build or not.
struct SafetensorsType {
  std::string_view name;
  int bytes;                   // of an element
  std::optional<DType> dtype;  // nothing: can be listed, not computed with
};
// Null for a name that the format does not have, or that packs several elements in a byte.
const SafetensorsType* FindSafetensorsType(std::string_view name);

struct SafetensorsHeader {
  struct Entry {
    std::string name;
    std::string dtype;
    std::vector<uint64_t> shape;
    uint64_t begin = 0, end = 0;  // bytes from the start of the data
  };
  std::vector<Entry> entries;
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Checks the form alone: every entry has a type, a shape and two offsets, and nothing else; no name
// twice. `source` names the file in messages.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, const std::string& source);

}  // namespace tokamak
