#include "tokenizer/sentencepiece_text.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/escaped_space.h"

namespace tokamak {

Result<SentencePieceText> SentencePieceText::Create(const NormalizerStep& spec) {
  SentencePieceText text;
  ASSIGN_OR_RETURN(text.charsmap_, CharsMap::Create(spec.content));
  std::vector<std::pair<std::string_view, int32_t>> verbatim;
  for (const std::string& token : spec.verbatim) {
    if (!token.empty()) verbatim.emplace_back(token, 0);
  }
  text.verbatim_ = ByteTrie(std::move(verbatim));
  text.prepend_ = spec.prepend;
  text.merge_spaces_ = spec.merge_spaces;
  text.append_space_ = spec.append_space;
  if (spec.escape_spaces) text.space_ = kEscapedSpace;
  return text;
}

std::string SentencePieceText::Normalize(std::string_view text, bool starts) const {
  // Cuts the next part off the text and returns its replacement.
  const auto next = [&] {
    size_t size = verbatim_.empty() ? 0 : verbatim_.Longest(text).size;
    std::string_view part;
    if (const auto rule = size > 0 ? CharsMap::Rule() : charsmap_.Longest(text); rule.size > 0) {
      size = rule.size;
      part = rule.replacement;
    } else {
      if (size == 0) size = Utf8Length(text[0]);
      part = text.substr(0, size);
    }
    text.remove_prefix(size);
    return part;
  };
  std::string out;
  if (merge_spaces_) {
    std::string_view rest = text;
    while (!text.empty() && next() == " ") rest = text;
    text = rest;
  }
  if (text.empty()) return out;
  out.reserve(text.size() + text.size() / 2);
  const bool adds_space =
      prepend_ == PrependScheme::kAlways || (prepend_ == PrependScheme::kFirst && starts);
  if (adds_space && !append_space_) out = space_;
  bool after_space = merge_spaces_;
  while (!text.empty()) {
    std::string_view part = next();
    while (after_space && part.starts_with(' ')) part.remove_prefix(1);
    if (!part.empty()) {
      for (const char c : part) {
        if (c == ' ') {
          out += space_;
        } else {
          out.push_back(c);
        }
      }
      after_space = merge_spaces_ && part.ends_with(' ');
    }
  }
  while (merge_spaces_ && out.ends_with(space_)) out.resize(out.size() - space_.size());
  if (adds_space && append_space_) out += space_;
  return out;
}

}  // namespace tokamak
