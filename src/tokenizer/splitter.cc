#include "tokenizer/splitter.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/bert_text.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/unicode.h"

namespace tokamak {
namespace {

using Kind = PreTokenizerStep::Kind;

constexpr std::string_view kGpt2 =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
// Rust's \w includes the two joiners.
constexpr std::string_view kWords = "[\\w\\x{200c}\\x{200d}]+|[^\\w\\s\\x{200c}\\x{200d}]+";

// Finds each character that `matches`, and the text between.
template <typename Spans, typename Matches>
void FindCharacters(std::string_view text, const Matches& matches, Spans& spans) {
  size_t from = 0;
  for (size_t offset = 0; offset < text.size();) {
    const size_t at = offset;
    if (!matches(NextCodePoint(text, offset))) continue;
    if (from < at) spans.push_back({from, at, false});
    spans.push_back({at, offset, true});
    from = offset;
  }
  if (from < text.size()) spans.push_back({from, text.size(), false});
}

// Spells a piece as Metaspace does.
std::string EscapeSpaces(const PreTokenizerStep& spec, std::string_view piece, bool starts) {
  std::string out;
  const bool prepend =
      spec.prepend == PrependScheme::kAlways || (spec.prepend == PrependScheme::kFirst && starts);
  if (prepend && piece.front() != ' ' && !piece.starts_with(spec.replacement)) {
    out = spec.replacement;
  }
  for (const char c : piece) {
    if (c == ' ') {
      out += spec.replacement;
    } else {
      out += c;
    }
  }
  return out;
}

// Arranges matches and the text between them as `behavior` says.
template <typename Spans>
Spans Arrange(const Spans& found, SplitBehavior behavior) {
  Spans out;
  bool previous = false;  // whether the last span was a match
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return found;
    case SplitBehavior::kRemoved:
      for (const auto& span : found) {
        if (!span.match) out.push_back(span);
      }
      break;
    case SplitBehavior::kContiguous:
      for (const auto& span : found) {
        if (span.match == previous && !out.empty()) {
          out.back().end = span.end;
        } else {
          out.push_back(span);
        }
        previous = span.match;
      }
      break;
    case SplitBehavior::kMergedWithPrevious:
      for (const auto& span : found) {
        if (span.match && !previous && !out.empty()) {
          out.back().end = span.end;
        } else {
          out.push_back(span);
        }
        previous = span.match;
      }
      break;
    case SplitBehavior::kMergedWithNext:
      for (auto it = found.rbegin(); it != found.rend(); ++it) {
        if (it->match && !previous && !out.empty()) {
          out.back().begin = it->begin;
        } else {
          out.push_back(*it);
        }
        previous = it->match;
      }
      return Spans(out.rbegin(), out.rend());
  }
  return out;
}

}  // namespace

Result<Splitter> Splitter::Create(const std::vector<PreTokenizerStep>& steps, bool leave_bytes) {
  Splitter splitter;
  splitter.leave_bytes_ = leave_bytes;
  for (const PreTokenizerStep& spec : steps) {
    Step step{spec, {}};
    if (spec.kind == Kind::kSplit && !spec.pattern.text.empty()) {
      ASSIGN_OR_RETURN(step.regex, spec.pattern.regex ? Regex::Compile(spec.pattern.text)
                                                      : Regex::Literal(spec.pattern.text));
    } else if (spec.kind == Kind::kByteLevel && spec.use_pattern) {
      ASSIGN_OR_RETURN(step.regex, Regex::Compile(kGpt2));
    } else if (spec.kind == Kind::kWhitespace) {
      ASSIGN_OR_RETURN(step.regex, Regex::Compile(kWords));
    }
    splitter.steps_.push_back(std::move(step));
  }
  return splitter;
}

Status Splitter::Split(std::string_view text, bool starts, RegexScratch& scratch,
                       FunctionRef<Status(std::string_view)> emit) const {
  return Run(0, text, starts, scratch, emit);
}

Status Splitter::FindSpans(const Regex& regex, std::string_view text, bool invert,
                           RegexScratch& scratch, std::vector<Span>& spans) {
  size_t from = 0;
  RETURN_IF_ERROR(regex.FindAll(text, scratch, [&](size_t begin, size_t end) {
    if (from != begin) spans.push_back({from, begin, invert});
    spans.push_back({begin, end, !invert});
    from = end;
  }));
  if (from != text.size()) spans.push_back({from, text.size(), invert});
  return Status();
}

Status Splitter::Cut(size_t level, std::string_view piece, const std::vector<Span>& spans,
                     bool starts, RegexScratch& scratch,
                     FunctionRef<Status(std::string_view)> emit) const {
  const Step& step = steps_[level];
  const bool spell =
      step.spec.kind == Kind::kByteLevel && !(leave_bytes_ && level + 1 == steps_.size());
  for (const Span& span : spans) {
    const std::string_view part = piece.substr(span.begin, span.end - span.begin);
    const bool first = starts && span.begin == 0;
    if (spell) {
      const std::string spelled = EncodeByteAlphabet(part);
      RETURN_IF_ERROR(Run(level + 1, spelled, first, scratch, emit));
    } else {
      RETURN_IF_ERROR(Run(level + 1, part, first, scratch, emit));
    }
  }
  return Status();
}

SplitBehavior Splitter::FindByCharacter(const PreTokenizerStep& spec, std::string_view piece,
                                        std::vector<Span>& spans) {
  size_t offset = 0;
  const uint32_t mark = spec.replacement.empty() ? 0 : NextCodePoint(spec.replacement, offset);
  const auto is_mark = [&](uint32_t c) { return c == mark; };
  const auto is_digit = [](uint32_t c) { return ClassOf(c) == CharClass::kNumber; };
  const auto ends_word = [](uint32_t c) { return IsWhiteSpace(c) || IsBertPunctuation(c); };
  switch (spec.kind) {
    case Kind::kDigits:
      FindCharacters(piece, is_digit, spans);
      return spec.behavior;
    case Kind::kPunctuation:
      FindCharacters(piece, IsBertPunctuation, spans);
      return spec.behavior;
    case Kind::kWhitespaceSplit:
      FindCharacters(piece, IsWhiteSpace, spans);
      return SplitBehavior::kRemoved;
    case Kind::kDelimiter:
      FindCharacters(piece, is_mark, spans);
      return SplitBehavior::kRemoved;
    case Kind::kBert:
      FindCharacters(piece, ends_word, spans);
      std::erase_if(spans, [&](const Span& span) {
        size_t at = span.begin;
        return span.match && IsWhiteSpace(NextCodePoint(piece, at));
      });
      return SplitBehavior::kIsolated;
    case Kind::kMetaspace:
      if (spec.split) {
        FindCharacters(piece, is_mark, spans);
      } else {
        spans.push_back({0, piece.size(), false});
      }
      return SplitBehavior::kMergedWithNext;
    default:
      return spec.behavior;
  }
}

Status Splitter::Run(size_t level, std::string_view piece, bool starts, RegexScratch& scratch,
                     FunctionRef<Status(std::string_view)> emit) const {
  if (piece.empty()) return Status();
  if (level == steps_.size()) return emit(piece);
  const Step& step = steps_[level];
  const PreTokenizerStep& spec = step.spec;
  std::vector<Span> spans;
  std::string changed;
  if (spec.kind == Kind::kMetaspace) {
    changed = EscapeSpaces(spec, piece, starts);
    piece = changed;
  } else if (spec.kind == Kind::kByteLevel && spec.add_prefix_space && piece.front() != ' ') {
    changed = " ";
    changed += piece;
    piece = changed;
  }
  SplitBehavior behavior = spec.behavior;
  if (step.regex) {
    const bool words = spec.kind == Kind::kWhitespace;
    RETURN_IF_ERROR(FindSpans(*step.regex, piece, spec.invert || words, scratch, spans));
    if (words) behavior = SplitBehavior::kRemoved;
  } else if (spec.kind == Kind::kSplit || spec.kind == Kind::kByteLevel) {
    spans.push_back({0, piece.size(), false});
  } else {
    behavior = FindByCharacter(spec, piece, spans);
  }
  return Cut(level, piece, Arrange(spans, behavior), starts, scratch, emit);
}

}  // namespace tokamak
