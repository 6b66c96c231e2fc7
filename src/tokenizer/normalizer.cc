#include "tokenizer/normalizer.h"

#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/bert_text.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/replace_all.h"
#include "tokenizer/unicode.h"

namespace tokamak {
namespace {

// No real normalizer makes text this much longer.
constexpr size_t kMaxGrowth = 32;

std::string Lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) AppendLowerCase(NextCodePoint(text, offset), out);
  return out;
}

std::string ToUtf8(const std::u32string& text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) AppendCodePoint(c, out);
  return out;
}

std::string StripAccents(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const uint32_t c = NextCodePoint(text, offset);
    if (ClassOf(c) != CharClass::kMark) AppendCodePoint(c, out);
  }
  return out;
}

// Applies SentencePiece's rules as the `tokenizers` library does: to a short grapheme as a whole if
// a rule matches its start (the shortest such rule), otherwise to each character.
std::string Precompiled(std::string_view text, const CharsMap& charsmap) {
  constexpr size_t kLongestGrapheme = 5;
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t size = GraphemeLength(text);
    std::string_view grapheme = text.substr(0, size);
    text.remove_prefix(size);
    if (size <= kLongestGrapheme) {
      if (const CharsMap::Rule rule = charsmap.Shortest(grapheme); rule.size > 0) {
        out += rule.replacement;
        continue;
      }
    }
    while (!grapheme.empty()) {
      const std::string_view character = grapheme.substr(0, Utf8Length(grapheme[0]));
      const CharsMap::Rule rule = charsmap.Shortest(character);
      out += rule.size > 0 ? rule.replacement : character;
      grapheme.remove_prefix(character.size());
    }
  }
  return out;
}

std::string Nmt(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const uint32_t c = NextCodePoint(text, offset);
    const bool removed = (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F ||
                         c == 0x8F || c == 0x9F;
    if (removed) continue;
    const bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                       (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xFEFF || c == 0xFFFD;
    AppendCodePoint(space ? ' ' : c, out);
  }
  return out;
}

// Whether a step that can drop characters drops the first one.
bool LosesFirst(const NormalizerStep& spec, std::string_view text) {
  if (text.empty()) return false;
  const std::string_view first = text.substr(0, Utf8Length(text[0]));
  switch (spec.kind) {
    case NormalizerStep::Kind::kStrip:
      return spec.left && TrimLeft(first).empty();
    case NormalizerStep::Kind::kNmt:
      return Nmt(first).empty();
    case NormalizerStep::Kind::kStripAccents:
      return StripAccents(first).empty();
    default:
      return false;
  }
}

}  // namespace

Result<Normalizer> Normalizer::Create(const std::vector<NormalizerStep>& steps) {
  Normalizer normalizer;
  for (const NormalizerStep& spec : steps) {
    Step step{spec, {}, {}, {}};
    if (spec.kind == NormalizerStep::Kind::kPrecompiled) {
      ASSIGN_OR_RETURN(step.charsmap, CharsMap::Create(spec.content));
    }
    if (spec.kind == NormalizerStep::Kind::kSentencePiece) {
      ASSIGN_OR_RETURN(step.pieces, SentencePieceText::Create(spec));
    }
    if (spec.kind == NormalizerStep::Kind::kReplace &&
        (spec.pattern.is_regex() || spec.pattern.text.empty())) {
      ASSIGN_OR_RETURN(step.regex, Regex::Compile(spec.pattern));
    }
    normalizer.steps_.push_back(std::move(step));
  }
  return normalizer;
}

Status Normalizer::Apply(std::string& text, RegexScratch& scratch, bool* starts) const {
  const size_t limit = (text.size() + 1024) * kMaxGrowth;
  for (const Step& step : steps_) {
    const NormalizerStep& spec = step.spec;
    if (starts != nullptr && *starts && LosesFirst(spec, text)) *starts = false;
    switch (spec.kind) {
      case NormalizerStep::Kind::kNfc:
        text = NormalizeNfc(text);
        break;
      case NormalizerStep::Kind::kNfd:
        text = ToUtf8(NormalizeNfd(text));
        break;
      case NormalizerStep::Kind::kNfkc:
        text = NormalizeNfkc(text);
        break;
      case NormalizerStep::Kind::kNfkd:
        text = ToUtf8(NormalizeNfkd(text));
        break;
      case NormalizerStep::Kind::kLowercase:
        text = Lowercase(text);
        break;
      case NormalizerStep::Kind::kStrip:
        if (spec.right) text.resize(TrimRight(text).size());
        if (spec.left) text.erase(0, text.size() - TrimLeft(text).size());
        break;
      case NormalizerStep::Kind::kStripAccents:
        text = StripAccents(text);
        break;
      case NormalizerStep::Kind::kReplace: {
        if (!step.regex) {
          ReplaceAll(text, spec.pattern.text, spec.content, limit);
          break;
        }
        std::string out;
        size_t from = 0;
        RETURN_IF_ERROR(step.regex->FindAll(text, scratch, [&](size_t begin, size_t end) {
          out.append(text, from, begin - from);
          if (out.size() <= limit) out += spec.content;
          from = end;
        }));
        out.append(text, from);
        text = std::move(out);
        break;
      }
      case NormalizerStep::Kind::kPrepend:
        if (!text.empty()) text.insert(0, spec.content);
        break;
      case NormalizerStep::Kind::kPrecompiled:
        text = Precompiled(text, step.charsmap);
        break;
      case NormalizerStep::Kind::kBert:
        text = NormalizeBert(text, {.clean = spec.clean_text,
                                    .isolate_ideographs = spec.chinese,
                                    .strip_accents = spec.strip_accents,
                                    .lowercase = spec.lowercase});
        break;
      case NormalizerStep::Kind::kByteLevel:
        text = EncodeByteAlphabet(text);
        break;
      case NormalizerStep::Kind::kNmt:
        text = Nmt(text);
        break;
      case NormalizerStep::Kind::kSentencePiece:
        text = step.pieces.Normalize(text, starts != nullptr && *starts);
        break;
    }
    if (text.size() > limit) {
      return ResourceExhausted("the tokenizer's normalizer expands the text to {} bytes",
                               text.size());
    }
  }
  return Status();
}

}  // namespace tokamak
