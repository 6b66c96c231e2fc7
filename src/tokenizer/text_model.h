// The interface of the four kinds of model, a tokenizer's last step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/bpe_merges.h"

namespace tokamak {

// Memory that a model reuses from piece to piece of a text.
struct EncodeScratch {
  BpeWord word;
  std::string spelled;
};

// Turns normalized and split text into ids. Immutable and thread-safe.
class TextModel {
 public:
  virtual ~TextModel() = default;

  // Appends the ids of `piece`, which is not empty.
  virtual void Encode(std::string_view piece, EncodeScratch& scratch,
                      std::vector<int32_t>& ids) const = 0;
};

}  // namespace tokamak
