#include "tokenizer/pretokenizer.h"

#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace tokamak {
namespace {

struct Span {
  size_t begin = 0;
  size_t end = 0;
};

std::string ErrorText(int code) {
  PCRE2_UCHAR buffer[128];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

bool Counts(SplitStep::Kind kind, uint32_t code_point) {
  if (code_point < 0x80) return code_point >= '0' && code_point <= '9';
  return kind == SplitStep::Kind::kNumberGroups ? ClassOf(code_point) == CharClass::kNumber
                                                : IsDecimalDigit(code_point);
}

// Cuts `text` before each group of three digits, counted from the end of a run of digits, and after
// the run if the kind isolates digits. Emits the parts.
template <typename Emit>
Status SplitDigits(SplitStep::Kind kind, std::string_view text, const Emit& emit) {
  size_t begin = 0;  // start of the current part
  const auto cut = [&](size_t at) -> Status {
    if (at == begin) return Status();
    const size_t from = std::exchange(begin, at);
    return emit(text.substr(from, at - from));
  };
  const bool isolate = kind != SplitStep::Kind::kDigitGroups;
  std::vector<size_t> digits;  // offsets of the digits in a run
  for (size_t offset = 0; offset < text.size();) {
    digits.clear();
    size_t end = offset;
    bool word_follows = false;
    while (end < text.size()) {
      size_t next = end;
      const uint32_t code_point = NextCodePoint(text, next);
      if (!Counts(kind, code_point)) {
        word_follows = IsWordCharacter(code_point);
        if (digits.empty()) end = next;
        break;
      }
      digits.push_back(end);
      end = next;
    }
    offset = end;
    if (digits.empty()) continue;
    if (kind == SplitStep::Kind::kWordEndDigitGroups && word_follows) continue;
    const size_t first = digits.size() % 3;
    if (isolate && first != 0) RETURN_IF_ERROR(cut(digits[0]));
    for (size_t i = first; i < digits.size(); i += 3) RETURN_IF_ERROR(cut(digits[i]));
    if (isolate) RETURN_IF_ERROR(cut(end));
  }
  return cut(text.size());
}

}  // namespace

struct PreTokenizer::Regex {
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  std::unique_ptr<pcre2_code, Free> code;
  bool jit = false;
};

struct PreTokenizer::Step {
  SplitStep::Kind kind;
  Regex regex;
};

// One call of Split. Holds the match data of PCRE2, which threads must not share.
class PreTokenizer::Run {
 public:
  Run(const PreTokenizer& rule, FunctionRef<void(std::string_view)> emit)
      : rule_(rule),
        emit_(emit),
        match_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    // The patterns are our own and linear (pretokenizer_table.cc), so the text bounds the work.
    if (context_) pcre2_set_match_limit(context_, UINT32_MAX);
  }
  ~Run() {
    pcre2_match_data_free(match_);
    pcre2_match_context_free(context_);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Splits `piece` by the steps from `level` on.
  Status Split(size_t level, std::string_view piece) {
    if (piece.empty()) return Status();
    if (level == rule_.steps_.size()) {
      emit_(piece);
      return Status();
    }
    const Step& step = rule_.steps_[level];
    if (step.kind != SplitStep::Kind::kRegex) {
      return SplitDigits(step.kind, piece,
                         [&](std::string_view part) { return Split(level + 1, part); });
    }
    size_t offset = 0;
    while (offset < piece.size()) {
      Span found;
      RETURN_IF_ERROR(Find(step.regex, piece, offset, found));
      if (!rule_.drop_between_) {
        RETURN_IF_ERROR(Split(level + 1, piece.substr(offset, found.begin - offset)));
      }
      RETURN_IF_ERROR(Split(level + 1, piece.substr(found.begin, found.end - found.begin)));
      offset = found.end;
    }
    return Status();
  }

 private:
  // Finds the next match at or after `offset`; an empty span at the end if there is none.
  Status Find(const Regex& regex, std::string_view text, size_t offset, Span& found) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const int rc = regex.jit ? pcre2_jit_match(regex.code.get(), subject, text.size(), offset,
                                               PCRE2_NO_UTF_CHECK, match_, context_)
                             : pcre2_match(regex.code.get(), subject, text.size(), offset,
                                           PCRE2_NO_UTF_CHECK, match_, context_);
    if (rc == PCRE2_ERROR_NOMATCH) {
      found = {text.size(), text.size()};
      return Status();
    }
    if (rc < 0) {
      return Internal("splitting the text failed after {} bytes: {}", offset, ErrorText(rc));
    }
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match_);
    found = {span[0], span[1]};
    if (found.end <= offset) return Internal("a pre-tokenizer pattern matched nothing");
    return Status();
  }

  const PreTokenizer& rule_;
  FunctionRef<void(std::string_view)> emit_;
  pcre2_match_data* match_;
  pcre2_match_context* context_;
};

PreTokenizer::PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::Create(const PreTokenizerRule& rule) {
  PreTokenizer result;
  result.drop_between_ = rule.drop_between;
  for (const SplitStep& step : rule.steps) {
    Step compiled{step.kind, {}};
    if (step.kind == SplitStep::Kind::kRegex) {
      const std::string_view pattern = step.pattern;
      int error = 0;
      PCRE2_SIZE where = 0;
      compiled.regex.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()),
                                              pattern.size(), PCRE2_UTF, &error, &where, nullptr));
      if (!compiled.regex.code) {
        return Internal("pre-tokenizer pattern \"{}\": {} at {}", pattern, ErrorText(error), where);
      }
      compiled.regex.jit = pcre2_jit_compile(compiled.regex.code.get(), PCRE2_JIT_COMPLETE) == 0;
    }
    result.steps_.push_back(std::move(compiled));
  }
  return result;
}

Status PreTokenizer::Split(std::string_view text, FunctionRef<void(std::string_view)> emit) const {
  return Run(*this, emit).Split(0, text);
}

}  // namespace tokamak
