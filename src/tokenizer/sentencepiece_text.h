// Text as SentencePiece's models see it. Reference: sentencepiece src/normalizer.cc.
#pragma once

#include <string>
#include <string_view>

#include "tokamak/status.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/pipeline_spec.h"

namespace tokamak {

// Immutable and safe to use from any number of threads.
class SentencePieceText {
 public:
  SentencePieceText() = default;
  // A step of the kind kSentencePiece. Fails on a malformed charsmap.
  static Result<SentencePieceText> Create(const NormalizerStep& spec);

  // `text` (valid UTF-8) by the charsmap's rules, the longest first, with spaces merged, spelled
  // and added as the step says. `starts`: it begins the whole input.
  std::string Normalize(std::string_view text, bool starts) const;

 private:
  CharsMap charsmap_;
  ByteTrie verbatim_;
  PrependScheme prepend_ = PrependScheme::kNever;
  bool merge_spaces_ = false, append_space_ = false;
  std::string_view space_ = " ";  // its spelling
};

}  // namespace tokamak
