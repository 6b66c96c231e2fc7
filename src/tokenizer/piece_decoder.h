// What each token of a tokenizer.json stands for in text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokamak/status.h"
#include "tokenizer/pipeline_spec.h"
#include "tokenizer/regex.h"

namespace tokamak {

// Decoding token by token, as streaming needs it: a decoder whose result for a token depends on
// more than whether it is the first is refused. Immutable.
class PieceDecoder {
 public:
  static Result<PieceDecoder> Create(const std::vector<DecoderStep>& steps);

  // The bytes of a token spelled `spelling`; `first`: nothing comes before it.
  std::string Decode(std::string_view spelling, bool first) const;
  // Spaces that a text loses at its start, besides what `first` does.
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
