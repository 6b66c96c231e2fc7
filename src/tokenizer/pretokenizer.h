// Splits text into the pieces within which byte-pair merges happen.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "tokamak/status.h"

namespace tokamak {

// One pass over the previous pass's pieces. Matches, and the text between them, become pieces.
struct SplitStep {
  enum class Kind : uint8_t {
    kRegex,
    kNumberGroups,       // runs of \p{N}, in groups of three counted from the right
    kDigitGroups,        // cut before each group of three \d, counted from the right
    kWordEndDigitGroups  // runs of \d not followed by a word character, in groups of three
  };
  Kind kind = Kind::kRegex;
  const char* pattern = nullptr;  // kRegex: PCRE2, UTF mode, own \s classes
};

// The meaning of a value of tokenizer.ggml.pre.
struct PreTokenizerRule {
  std::span<const SplitStep> steps;
  bool byte_level = true;       // tokens are in GPT-2's byte alphabet; else in UTF-8
  bool ignore_merges = false;   // a piece that is a token is that token, without merging
  bool add_bos = false;         // if the checkpoint does not say
  bool nfc = false;             // normalize to form C first
  bool escape_spaces = false;   // spell a space as ▁
  bool whole_newlines = false;  // a piece of newlines that is a token is that token
  bool drop_between = false;    // drop the text between matches
};

// Finds the rule by name; null if unknown. The table is in pretokenizer_table.cc.
const PreTokenizerRule* FindPreTokenizer(std::string_view name);
std::vector<std::string_view> PreTokenizerNames();

// A compiled rule. Immutable and thread-safe.
class PreTokenizer {
 public:
  static Result<PreTokenizer> Create(const PreTokenizerRule& rule);
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Calls `emit` with each piece of `text` (valid UTF-8), in order.
  Status Split(std::string_view text, FunctionRef<void(std::string_view)> emit) const;

 private:
  struct Regex;
  struct Step;
  class Run;
  PreTokenizer();

  std::vector<Step> steps_;
  bool drop_between_ = false;
};

}  // namespace tokamak
