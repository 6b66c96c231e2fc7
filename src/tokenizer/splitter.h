// Splits normalized text into the pieces that a model encodes one by one.
#pragma once

#include <cstddef>
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
  // input.
  Status Split(std::string_view text, bool starts, RegexScratch& scratch,
               FunctionRef<Status(std::string_view)> emit) const;

 private:
  struct Span {
    size_t begin = 0, end = 0;
    bool match = false;
  };
  struct Step {
    PreTokenizerStep spec;
    std::optional<Regex> regex;
  };
  Status Run(size_t level, std::string_view piece, bool starts, RegexScratch& scratch,
             FunctionRef<Status(std::string_view)> emit) const;
  Status Cut(size_t level, std::string_view piece, const std::vector<Span>& spans, bool starts,
             RegexScratch& scratch, FunctionRef<Status(std::string_view)> emit) const;
  static Status FindSpans(const Regex& regex, std::string_view text, bool invert,
                          RegexScratch& scratch, std::vector<Span>& spans);

  // Finds spans for steps that look at one character at a time, and returns what to do with them.
  static SplitBehavior FindByCharacter(const PreTokenizerStep& spec, std::string_view piece,
                                       std::vector<Span>& spans);

  std::vector<Step> steps_;
  bool leave_bytes_ = false;
};

}  // namespace tokamak
