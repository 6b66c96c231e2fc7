#include "tokenizer/splitter.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/bert_text.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/digit_groups.h"
#include "tokenizer/replace_all.h"
#include "tokenizer/unicode.h"

namespace tokamak {
namespace {

using Kind = PreTokenizerStep::Kind;

constexpr std::string_view kGpt2 =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
// Rust's \w includes the two joiners.
constexpr std::string_view kWords = "[\\w\\x{200c}\\x{200d}]+|[^\\w\\s\\x{200c}\\x{200d}]+";

// A match, or the text between two.
struct Span {
  size_t begin = 0, end = 0;
  bool match = false;
};

// Calls `add` with each character that `matches`, and with the text between.
template <typename Matches, typename Add>
void FindCharacters(std::string_view text, const Matches& matches, const Add& add) {
  size_t from = 0;
  for (size_t offset = 0; offset < text.size();) {
    const size_t at = offset;
    if (!matches(NextCodePoint(text, offset))) continue;
    if (from < at) add(Span{from, at, false});
    add(Span{at, offset, true});
    from = offset;
  }
  if (from < text.size()) add(Span{from, text.size(), false});
}

// Spells a piece as Metaspace does.
std::string EscapeSpaces(const PreTokenizerStep& spec, std::string_view piece, bool starts) {
  std::string out(piece);
  ReplaceAll(out, " ", spec.replacement);
  const bool prepend =
      spec.prepend == PrependScheme::kAlways || (spec.prepend == PrependScheme::kFirst && starts);
  if (prepend && piece.front() != ' ' && !piece.starts_with(spec.replacement)) {
    out.insert(0, spec.replacement);
  }
  return out;
}

// Joins spans as a behavior says. They come in order; `emit` gets the results.
template <typename Emit>
class Joiner {
 public:
  Joiner(SplitBehavior behavior, const Emit& emit) : behavior_(behavior), emit_(emit) {}

  void Add(const Span& span) {
    if (behavior_ == SplitBehavior::kIsolated) return emit_(span.begin, span.end);
    if (behavior_ == SplitBehavior::kRemoved) {
      if (!span.match) emit_(span.begin, span.end);
      return;
    }
    const bool joins = behavior_ == SplitBehavior::kContiguous ? span.match == last_.match
                       : behavior_ == SplitBehavior::kMergedWithPrevious
                           ? span.match && !last_.match
                           : last_.match && !span.match;
    const bool extends = joins && last_.end > begin_;
    if (!extends) Finish();
    last_ = span;
  }
  // Emits what waits for a span to join it.
  void Finish() {
    if (last_.end > begin_) emit_(begin_, last_.end);
    begin_ = last_.end;
  }

 private:
  const SplitBehavior behavior_;
  const Emit& emit_;
  size_t begin_ = 0;  // of the text that was not emitted
  Span last_;
};

// Calls `add` with the spans of steps that look at one character at a time.
template <typename Add>
void FindByCharacter(const PreTokenizerStep& spec, std::string_view piece, const Add& add) {
  size_t offset = 0;
  const uint32_t mark = spec.replacement.empty() ? 0 : NextCodePoint(spec.replacement, offset);
  const auto is_mark = [&](uint32_t c) { return c == mark; };
  const auto is_digit = [](uint32_t c) { return ClassOf(c) == CharClass::kNumber; };
  bool space = false;  // kBert: whether the last character is one
  const auto ends_word = [&](uint32_t c) {
    space = IsWhiteSpace(c);
    return space || IsBertPunctuation(c);
  };
  switch (spec.kind) {
    case Kind::kDigits:
      return FindCharacters(piece, is_digit, add);
    case Kind::kPunctuation:
      return FindCharacters(piece, IsBertPunctuation, add);
    case Kind::kWhitespaceSplit:
      return FindCharacters(piece, IsWhiteSpace, add);
    case Kind::kBert:
      return FindCharacters(piece, ends_word, [&](const Span& span) {
        if (!span.match || !space) add(span);
      });
    case Kind::kMetaspace:
      if (!spec.split) break;
      [[fallthrough]];
    case Kind::kDelimiter:
      return FindCharacters(piece, is_mark, add);
    case Kind::kNumberGroups:
    case Kind::kWordEndDigitGroups:
    case Kind::kDigitGroups:
      return SplitDigitGroups(spec.kind, piece, [&](size_t begin, size_t end) {
        add(Span{begin, end, false});
      });
    default:
      break;
  }
  add(Span{0, piece.size(), false});
}

// How a step joins its matches with the text around them.
SplitBehavior BehaviorOf(const PreTokenizerStep& spec) {
  switch (spec.kind) {
    case Kind::kMetaspace:
      return SplitBehavior::kMergedWithNext;
    case Kind::kWhitespace:
    case Kind::kWhitespaceSplit:
    case Kind::kDelimiter:
      return SplitBehavior::kRemoved;
    case Kind::kBert:
      return SplitBehavior::kIsolated;
    default:
      return spec.behavior;
  }
}

}  // namespace

Result<Splitter> Splitter::Create(const std::vector<PreTokenizerStep>& steps, bool leave_bytes) {
  Splitter splitter;
  for (const PreTokenizerStep& spec : steps) {
    const bool bytes = spec.kind == Kind::kByteLevel;
    const bool last = &spec == &steps.back();
    Step step{spec, {}, BehaviorOf(spec), bytes && !(last && leave_bytes)};
    // A step that would only spell bytes does nothing.
    if (bytes && !step.spell && !spec.use_pattern && !spec.add_prefix_space) continue;
    if (spec.kind == Kind::kSplit && !spec.pattern.text.empty()) {
      ASSIGN_OR_RETURN(step.regex, Regex::Compile(spec.pattern));
    } else if (bytes && spec.use_pattern) {
      ASSIGN_OR_RETURN(step.regex, Regex::Compile(kGpt2));
    } else if (spec.kind == Kind::kWhitespace) {
      ASSIGN_OR_RETURN(step.regex, Regex::Compile(kWords));
      step.spec.invert = true;
    }
    splitter.steps_.push_back(std::move(step));
  }
  return splitter;
}

// One call of Split.
class Splitter::Run {
 public:
  Run(const std::vector<Step>& steps, RegexScratch& scratch,
      FunctionRef<void(std::string_view)> emit)
      : steps_(steps), scratch_(scratch), emit_(emit) {}

  // Splits `piece` by the steps from `level` on. `starts`: it begins the whole input.
  void Split(size_t level, std::string_view piece, bool starts) {
    if (piece.empty() || !status_.ok()) return;
    if (level == steps_.size()) return emit_(piece);
    const PreTokenizerStep& spec = steps_[level].spec;
    if (spec.kind == Kind::kMetaspace) {
      return Cut(level, EscapeSpaces(spec, piece, starts), starts);
    }
    if (spec.kind == Kind::kByteLevel && spec.add_prefix_space && piece.front() != ' ') {
      return Cut(level, " " + std::string(piece), starts);
    }
    Cut(level, piece, starts);
  }

  const Status& status() const { return status_; }

 private:
  void Cut(size_t level, std::string_view piece, bool starts) {
    const Step& step = steps_[level];
    const auto next = [&](size_t begin, size_t end) {
      const std::string_view part = piece.substr(begin, end - begin);
      const bool first = starts && begin == 0;
      if (step.spell) {
        Split(level + 1, EncodeByteAlphabet(part), first);
      } else {
        Split(level + 1, part, first);
      }
    };
    Joiner joiner(step.behavior, next);
    const auto add = [&](const Span& span) { joiner.Add(span); };
    if (step.regex) {
      FindMatches(step, piece, add);
    } else {
      FindByCharacter(step.spec, piece, add);
    }
    joiner.Finish();
  }

  template <typename Add>
  void FindMatches(const Step& step, std::string_view piece, const Add& add) {
    const bool invert = step.spec.invert;
    size_t from = 0;
    const Status found = step.regex->FindAll(piece, scratch_, [&](size_t begin, size_t end) {
      if (from != begin) add(Span{from, begin, invert});
      add(Span{begin, end, !invert});
      from = end;
    });
    if (!found.ok()) status_ = found;
    if (from != piece.size()) add(Span{from, piece.size(), invert});
  }

  const std::vector<Step>& steps_;
  RegexScratch& scratch_;
  const FunctionRef<void(std::string_view)> emit_;
  Status status_;
};

Status Splitter::Split(std::string_view text, bool starts, RegexScratch& scratch,
                       FunctionRef<void(std::string_view)> emit) const {
  Run run(steps_, scratch, emit);
  run.Split(0, text, starts);
  return run.status();
}

}  // namespace tokamak
