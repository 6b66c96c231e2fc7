// Text to normalized text, step by step.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tokamak/status.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/pipeline_spec.h"
#include "tokenizer/regex.h"
#include "tokenizer/sentencepiece_text.h"

namespace tokamak {

// Immutable and safe to use from any number of threads.
class Normalizer {
 public:
  // Fails on a malformed charsmap or pattern.
  static Result<Normalizer> Create(const std::vector<NormalizerStep>& steps);

  bool empty() const { return steps_.empty(); }
  // Changes `text`, valid UTF-8, in place. kResourceExhausted when it would grow beyond reason.
  // Clears `starts`, if given, where the text no longer begins with what it began with: Metaspace
  // with the scheme "first" looks at that.
  Status Apply(std::string& text, RegexScratch& scratch, bool* starts = nullptr) const;

 private:
  struct Step {
    NormalizerStep spec;
    CharsMap charsmap;           // kPrecompiled
    SentencePieceText pieces;    // kSentencePiece
    std::optional<Regex> regex;  // kReplace
  };
  std::vector<Step> steps_;
};

}  // namespace tokamak
