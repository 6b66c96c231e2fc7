// Splitting text into the pieces that byte-pair merges work within.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "tokamak/status.h"

namespace tokamak {

// One pass over the pieces of the pass before: what it finds, and what lies between, become pieces.
struct SplitStep {
  enum class Kind : uint8_t {
    kRegex,
    kNumberGroups,       // runs of \p{N}, in groups of three counted from the right
    kDigitGroups,        // before each group of three \d, counted from the right
    kWordEndDigitGroups  // runs of \d not followed by a word character, in groups of three
  };
  Kind kind = Kind::kRegex;
  const char* pattern = nullptr;  // kRegex: PCRE2, UTF mode, own \s classes
};

// What a value of tokenizer.ggml.pre means.
struct PreTokenizerRule {
  std::span<const SplitStep> steps;
  bool byte_level = true;       // tokens are spelled in GPT-2's byte alphabet; else plain UTF-8
  bool ignore_merges = false;   // a piece that is a token is that token, whatever the merges say
  bool add_bos = false;         // when the checkpoint does not say
  bool nfc = false;             // text is put in normalization form C first
  bool escape_spaces = false;   // a space is spelled ▁
  bool whole_newlines = false;  // a piece of newlines that is a token is that token
  bool drop_between = false;    // what lies between matches is dropped
};

// The rule of a pre-tokenizer's name, or null. The table is pretokenizer_table.cc.
const PreTokenizerRule* FindPreTokenizer(std::string_view name);
// Every name in the table.
std::vector<std::string_view> PreTokenizerNames();

// A rule, compiled. Immutable and safe to use from any number of threads.
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
