// The interface of the four kinds of tokenizer.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tokamak/status.h"

namespace tokamak {

// Turns text without special tokens into ids. Immutable and thread-safe.
class TextModel {
 public:
  virtual ~TextModel() = default;

  // Appends the ids of `text` (valid UTF-8, not empty). `starts` is true if the text begins the
  // input or follows a special token.
  virtual Status Encode(std::string_view text, bool starts, std::vector<int32_t>& ids) const = 0;
};

}  // namespace tokamak
