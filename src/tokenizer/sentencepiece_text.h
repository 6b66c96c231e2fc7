// SentencePiece's normalization of text. Reference: sentencepiece src/normalizer.cc.
#pragma once

#include <string>
#include <string_view>

#include "tokamak/status.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/pipeline_spec.h"

namespace tokamak {

// Immutable and thread-safe.
class SentencePieceText {
 public:
  SentencePieceText() = default;
  // `spec` must be of kind kSentencePiece. Fails on a malformed charsmap.
  static Result<SentencePieceText> Create(const NormalizerStep& spec);

  // Normalizes `text` (valid UTF-8): applies the charsmap's rules, longest first, then merges,
  // spells and adds spaces as the step says. `starts`: it begins the whole input.
  std::string Normalize(std::string_view text, bool starts) const;

 private:
  CharsMap charsmap_;
  ByteTrie verbatim_;
  PrependScheme prepend_ = PrependScheme::kNever;
  bool merge_spaces_ = false, append_space_ = false;
  std::string_view space_ = " ";  // how it is spelled
};

}  // namespace tokamak
