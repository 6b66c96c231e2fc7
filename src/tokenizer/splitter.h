// Splits normalized text into the pieces that a model encodes one by one.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "tokamak/status.h"
#include "tokenizer/pipeline_spec.h"
#include "tokenizer/regex.h"

namespace tokamak {

// Immutable and thread-safe.
class Splitter {
 public:
  // `leave_bytes`: if the last step spells bytes in GPT-2's alphabet, emit plain bytes instead.
  static Result<Splitter> Create(const std::vector<PreTokenizerStep>& steps, bool leave_bytes);

  // Calls `emit` with each non-empty piece of `text`, in order. `starts`: it begins the whole
  // input. After an error the pieces are incomplete.
  Status Split(std::string_view text, bool starts, RegexScratch& scratch,
               FunctionRef<void(std::string_view)> emit) const;

 private:
  struct Step {
    PreTokenizerStep spec;
    std::optional<Regex> regex;
    SplitBehavior behavior;
    bool spell;  // bytes in GPT-2's alphabet
  };
  class Run;

  std::vector<Step> steps_;
};

}  // namespace tokamak
