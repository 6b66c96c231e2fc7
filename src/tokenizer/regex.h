// Regular expressions as tokenizer.json has them: Oniguruma's, in Ruby's syntax, run by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "tokamak/status.h"

namespace tokamak {

// What matching writes to: one per thread.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  struct Data;
  std::unique_ptr<Data> data_;
};

// Immutable and safe to use from any number of threads.
class Regex {
 public:
  // kUnimplemented for what PCRE2 has no equal of, kInvalidArgument for what is malformed.
  static Result<Regex> Compile(std::string_view oniguruma);
  // The text itself.
  static Result<Regex> Literal(std::string_view text);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // Calls `on_match` with the first and one past the last byte of each match in `text` (valid
  // UTF-8), from left to right. An empty match directly behind another match does not count.
  // kResourceExhausted when the pattern takes too long for the text.
  Status FindAll(std::string_view text, RegexScratch& scratch,
                 FunctionRef<void(size_t, size_t)> on_match) const;

 private:
  struct Code;
  Regex();
  static Result<Regex> CompilePcre(const std::string& pattern, std::string_view shown);
  std::unique_ptr<const Code> code_;
};

// The pattern as PCRE2 spells it: Oniguruma's \s, \d, \w and \h are those of Unicode, \p{Name} may
// be a script, and classes can be intersected.
Result<std::string> TranslateOniguruma(std::string_view pattern);

}  // namespace tokamak
