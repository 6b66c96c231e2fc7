// Regular expressions of tokenizers, run by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "tokamak/status.h"
#include "tokenizer/pipeline_spec.h"

namespace tokamak {

// Memory for matching. Use one per thread.
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

// Immutable and thread-safe.
class Regex {
 public:
  // kUnimplemented if PCRE2 has no equivalent, kInvalidArgument if malformed.
  static Result<Regex> Compile(const TextPattern& pattern);
  static Result<Regex> Compile(std::string_view oniguruma) {
    return Compile({std::string(oniguruma), TextPattern::Syntax::kOniguruma});
  }
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // Calls `on_match` with the begin and end offset of each match in `text` (valid UTF-8), left to
  // right. An empty match directly after another match does not count. kResourceExhausted if
  // matching takes too long.
  Status FindAll(std::string_view text, RegexScratch& scratch,
                 FunctionRef<void(size_t, size_t)> on_match) const;

 private:
  struct Code;
  Regex();
  std::unique_ptr<const Code> code_;
};

// Translates a pattern to PCRE2: Oniguruma's \s, \d, \w and \h follow Unicode, \p{Name} may be a
// script, and classes can be intersected.
Result<std::string> TranslateOniguruma(std::string_view pattern);

}  // namespace tokamak
