// Normalizes text in steps.
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

// Immutable and thread-safe.
class Normalizer {
 public:
  // Fails on a malformed charsmap or pattern.
  static Result<Normalizer> Create(const std::vector<NormalizerStep>& steps);

  bool empty() const { return steps_.empty(); }
  // Normalizes `text`, valid UTF-8, in place. kResourceExhausted if it grows too much. Clears
  // `starts`, if given, when the text loses its first character: Metaspace with the scheme "first"
  // needs that.
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
