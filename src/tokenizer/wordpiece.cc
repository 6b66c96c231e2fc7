#include "tokenizer/wordpiece.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/bert_text.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/escaped_space.h"
#include "tokenizer/unicode.h"

namespace tokamak {
namespace {

constexpr size_t kMaxWordCharacters = 100;  // a longer word is unknown

class WordPiece final : public TextModel {
 public:
  explicit WordPiece(const VocabSpec& spec)
      : lowercase_(spec.lowercase), strip_accents_(spec.strip_accents), unk_(spec.special.unk) {
    std::vector<std::pair<std::string_view, int32_t>> tokens;
    for (size_t id = 0; id < spec.tokens.size(); ++id) {
      const TokenType type = spec.types[id];
      if (type == TokenType::kControl || type == TokenType::kUnknown) continue;
      if (!spec.tokens[id].empty()) tokens.emplace_back(spec.tokens[id], static_cast<int32_t>(id));
    }
    trie_ = ByteTrie(std::move(tokens));
  }
  void Encode(std::string_view text, EncodeScratch& scratch,
              std::vector<int32_t>& ids) const override;

 private:
  void EncodeWord(std::string_view word, std::vector<int32_t>& ids) const;

  const bool lowercase_, strip_accents_;
  const int32_t unk_;
  ByteTrie trie_;
};

void WordPiece::Encode(std::string_view text, EncodeScratch& /*scratch*/,
                       std::vector<int32_t>& ids) const {
  const std::string normalized = NormalizeBert(text, {.clean = true,
                                                      .isolate_ideographs = true,
                                                      .strip_accents = strip_accents_,
                                                      .lowercase = lowercase_});
  const std::string_view view = normalized;
  size_t begin = 0;  // of the current word
  for (size_t offset = 0; offset < view.size();) {
    const size_t at = offset;
    const uint32_t c = NextCodePoint(view, offset);
    const bool space = IsWhiteSpace(c);
    if (!space && !IsBertPunctuation(c)) continue;
    EncodeWord(view.substr(begin, at - begin), ids);
    if (!space) EncodeWord(view.substr(at, offset - at), ids);
    begin = offset;
  }
  EncodeWord(view.substr(begin), ids);
}

void WordPiece::EncodeWord(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.empty()) return;
  size_t characters = 0;
  for (size_t i = 0; i < word.size(); i += Utf8Length(word[i])) ++characters;
  if (characters > kMaxWordCharacters) {
    ids.push_back(unk_);
    return;
  }
  std::string spelled(kEscapedSpace);
  spelled += word;
  std::string_view rest = spelled;
  const size_t before = ids.size();
  while (!rest.empty()) {
    const ByteTrie::Match match = trie_.Longest(rest);
    if (match.size == 0) {  // one unknown part makes the whole word unknown
      ids.resize(before);
      ids.push_back(unk_);
      return;
    }
    ids.push_back(match.id);
    rest.remove_prefix(match.size);
  }
}

}  // namespace

Result<std::unique_ptr<const TextModel>> CreateWordPiece(const VocabSpec& spec) {
  if (spec.special.unk < 0) return InvalidArgument("the vocabulary has no unknown token");
  return std::unique_ptr<const TextModel>(std::make_unique<WordPiece>(spec));
}

}  // namespace tokamak
