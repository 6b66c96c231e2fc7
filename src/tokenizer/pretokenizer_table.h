// The pre-tokenizers that GGUF files name (tokenizer.ggml.pre).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/pipeline_spec.h"

namespace tokamak {

// The pre-tokenizer that a name stands for. A text goes through the steps in order; the matches of
// a step, and the text between them, become pieces.
struct PreTokenizerRule {
  struct Step {
    const char* pattern = nullptr;  // kSplit: PCRE2, with its own classes of white space
    PreTokenizerStep::Kind kind = PreTokenizerStep::Kind::kSplit;
  };
  std::span<const Step> steps;
  bool byte_level = true;       // tokens are in GPT-2's byte alphabet; else in UTF-8
  bool ignore_merges = false;   // a piece that is a token is that token, without merging
  bool add_bos = false;         // if the checkpoint does not say
  bool nfc = false;             // normalize to form C first
  bool escape_spaces = false;   // spell a space as ▁
  bool whole_newlines = false;  // a piece of newlines that is a token is that token
  bool drop_between = false;    // drop the text between matches

  std::vector<PreTokenizerStep> PreTokenizers() const;
};

// Finds the rule by name; null if unknown.
const PreTokenizerRule* FindPreTokenizer(std::string_view name);
std::vector<std::string_view> PreTokenizerNames();

}  // namespace tokamak
