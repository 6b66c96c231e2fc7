#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "base/utf8.h"

namespace tokamak {
namespace {

// Patterns come from files, so each match is limited to this many steps (more would take seconds)
// and this much memory. Our own patterns are linear, so the text bounds their steps.
constexpr uint32_t kMatchLimit = 20'000'000;
constexpr uint32_t kOwnMatchLimit = UINT32_MAX;
constexpr size_t kMaxPatternBytes = size_t{1} << 16;
constexpr size_t kJitStackBytes = size_t{8} << 20;

std::string ErrorText(int code) {
  PCRE2_UCHAR buffer[128];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

// Returns a pattern that matches `text` literally.
std::string Escape(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    const bool word = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (!word && static_cast<uint8_t>(c) < 0x80) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace

struct RegexScratch::Data {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  // Created only when a match needs more than the 32 KiB that PCRE2 takes of the thread's stack,
  // because mapping this memory takes about as long as tokenizing a sentence.
  pcre2_jit_stack* stack = nullptr;

  Data() = default;
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;
  ~Data() {
    pcre2_match_data_free(match);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  // Returns whether matches now have more stack than before.
  bool AddStack() {
    if (stack != nullptr) return false;
    stack = pcre2_jit_stack_create(size_t{64} << 10, kJitStackBytes, nullptr);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
    return stack != nullptr;
  }
};

RegexScratch::RegexScratch() : data_(std::make_unique<Data>()) {}
RegexScratch::~RegexScratch() = default;

struct Regex::Code {
  Code(pcre2_code* compiled, uint32_t limit) : code(compiled), match_limit(limit) {
    jit = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  }
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_code* code;
  uint32_t match_limit;
  bool jit = false;
};

Regex::Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::Compile(const TextPattern& pattern) {
  if (pattern.text.size() > kMaxPatternBytes) {
    return InvalidArgument("a pattern has {} bytes; at most {} are supported", pattern.text.size(),
                           kMaxPatternBytes);
  }
  std::string translated = pattern.text;
  if (pattern.syntax == TextPattern::Syntax::kLiteral) {
    translated = Escape(pattern.text);
  } else if (pattern.syntax == TextPattern::Syntax::kOniguruma) {
    ASSIGN_OR_RETURN(translated, TranslateOniguruma(pattern.text));
  }
  int error = 0;
  PCRE2_SIZE where = 0;
  // In Ruby, ^ and $ match at the ends of lines.
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &where, nullptr);
  if (code == nullptr) {
    return InvalidArgument("the pattern \"{}\": {}", ToValidUtf8(pattern.text), ErrorText(error));
  }
  const bool own = pattern.syntax == TextPattern::Syntax::kPcre;
  Regex regex;
  regex.code_ = std::make_unique<Code>(code, own ? kOwnMatchLimit : kMatchLimit);
  return regex;
}

Status Regex::FindAll(std::string_view text, RegexScratch& scratch,
                      FunctionRef<void(size_t, size_t)> on_match) const {
  RegexScratch::Data& data = *scratch.data_;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t last_end = std::string_view::npos;
  for (size_t offset = 0; offset <= text.size();) {
    // Each time, because `on_match` may have used the scratch memory for another pattern.
    pcre2_set_match_limit(data.context, code_->match_limit);
    int rc = code_->jit ? pcre2_jit_match(code_->code, subject, text.size(), offset,
                                          PCRE2_NO_UTF_CHECK, data.match, data.context)
                        : pcre2_match(code_->code, subject, text.size(), offset, PCRE2_NO_UTF_CHECK,
                                      data.match, data.context);
    if (rc == PCRE2_ERROR_NOMATCH) return Status();
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT && data.AddStack()) continue;
    if (rc < 0) {
      return ResourceExhausted("splitting the text failed after {} bytes: {}", offset,
                               ErrorText(rc));
    }
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(data.match);
    const size_t begin = span[0], end = span[1];
    if (end < begin || begin < offset) return Internal("a pattern matched backwards");
    if (end > begin || end != last_end) {
      on_match(begin, end);
      last_end = end;
    }
    offset = end;
    if (end == begin) {
      if (end >= text.size()) return Status();
      offset += Utf8Length(text[end]);
    }
  }
  return Status();
}

}  // namespace tokamak
