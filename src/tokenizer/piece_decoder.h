// The text of each token of a tokenizer.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokamak/status.h"
#include "tokenizer/pipeline_spec.h"
#include "tokenizer/regex.h"

namespace tokamak {

// Decodes token by token, as streaming needs. Refuses decoders whose result for a token depends on
// more than whether it is the first. Immutable.
class PieceDecoder {
 public:
  static Result<PieceDecoder> Create(const std::vector<DecoderStep>& steps);

  // Returns the bytes of the token spelled `spelling`. `first`: it begins the text.
  std::string Decode(std::string_view spelling, bool first) const;
  // Spaces that a text loses at its start, in addition to what `first` does.
  size_t leading_spaces() const { return leading_spaces_; }

 private:
  struct Step {
    DecoderStep spec;
    std::optional<Regex> regex;
  };
  std::vector<Step> steps_;
  size_t leading_spaces_ = 0;
};

}  // namespace tokamak
