// Unigram and WordPiece over pieces as in the `tokenizers` library.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/byte_tokens.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/pipeline_spec.h"
#include "tokenizer/unigram_search.h"
#include "tokenizer/word_models.h"

namespace tokamak {
namespace {

// Bounds the time to O(text × kMaxTokenBytes).
constexpr size_t kMaxTokenBytes = 4096;

class UnigramWords final : public TextModel {
 public:
  explicit UnigramWords(const VocabSpec& spec) : unk_(spec.pipeline.unk), byte_tokens_(spec) {
    const bool own = spec.pipeline.sentencepiece;
    std::vector<UnigramSearch::Token> tokens;
    double lowest = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < spec.tokens.size(); ++i) {
      const TokenType type = spec.types[i];
      if (!spec.pipeline.in_model[i]) continue;
      const auto id = static_cast<int32_t>(i);
      const double score = spec.pipeline.scores[i];
      if (own ? type == TokenType::kNormal : type != TokenType::kUnused) {
        lowest = std::min(lowest, score);
      }
      // Ordinary text must not produce control tokens.
      if (type == TokenType::kControl || spec.tokens[i].empty()) continue;
      tokens.push_back({spec.tokens[i], id, score});
    }
    for (UnigramSearch::Token& token : tokens) {
      // With this score user-defined tokens are always preferred. Found by experiments with
      // sentencepiece 0.2.3; its last bit counts where two segmentations tie.
      if (!own || spec.types[static_cast<size_t>(token.id)] != TokenType::kUserDefined) continue;
      token.score = static_cast<float>(0.1 * static_cast<double>(token.text.size()) - 0.1);
    }
    search_ = UnigramSearch(tokens, lowest - UnigramSearch::kUnknownPenalty, own);
  }

  void Encode(std::string_view text, EncodeScratch& /*scratch*/,
              std::vector<int32_t>& ids) const override {
    std::string_view unknown;  // adjacent characters that no token covers
    search_.Segment(text, [&](std::string_view part, int32_t id) {
      if (id < 0) {
        unknown =
            unknown.empty() ? part : std::string_view(unknown.data(), unknown.size() + part.size());
        return;
      }
      AppendUnknown(std::exchange(unknown, {}), ids);
      ids.push_back(id);
    });
    AppendUnknown(unknown, ids);
  }
  bool can_encode_anything() const { return unk_ >= 0 || byte_tokens_.complete(); }

 private:
  void AppendUnknown(std::string_view text, std::vector<int32_t>& ids) const {
    if (text.empty()) return;
    if (!byte_tokens_.Cover(text)) {
      ids.push_back(unk_);
      return;
    }
    for (const char byte : text) ids.push_back(byte_tokens_[byte]);
  }

  const int32_t unk_;
  const ByteTokens byte_tokens_;
  UnigramSearch search_;
};

class WordPieceWords final : public TextModel {
 public:
  explicit WordPieceWords(const VocabSpec& spec)
      : unk_(spec.pipeline.unk),
        max_characters_(spec.pipeline.max_word_characters),
        two_spellings_(!spec.pipeline.continuing_prefix.empty()) {
    const std::string& prefix = spec.pipeline.continuing_prefix;
    std::vector<std::pair<std::string_view, int32_t>> first, inside;
    for (size_t i = 0; i < spec.tokens.size(); ++i) {
      const std::string_view token = spec.tokens[i];
      if (!spec.pipeline.in_model[i] || token.empty()) continue;
      first.emplace_back(token, static_cast<int32_t>(i));
      if (two_spellings_ && token.starts_with(prefix) && token.size() > prefix.size()) {
        inside.emplace_back(token.substr(prefix.size()), static_cast<int32_t>(i));
      }
    }
    first_ = ByteTrie(std::move(first));
    inside_ = ByteTrie(std::move(inside));
    for (const char byte : spec.pipeline.word_prefix) {
      word_start_ = first_.Next(word_start_, byte);
    }
    if (word_start_ >= 0) bare_prefix_ = first_.Id(word_start_);
  }

  void Encode(std::string_view word, EncodeScratch& /*scratch*/,
              std::vector<int32_t>& ids) const override {
    size_t characters = 0;
    for (size_t i = 0; i < word.size(); i += Utf8Length(word[i])) ++characters;
    if (characters > max_characters_) {
      ids.push_back(unk_);
      return;
    }
    const size_t before = ids.size();
    bool inside = false;
    for (size_t at = 0; at < word.size(); inside = true) {
      const std::string_view rest = word.substr(at);
      ByteTrie::Match match = !inside          ? first_.Longest(rest, word_start_)
                              : two_spellings_ ? inside_.Longest(rest)
                                               : first_.Longest(rest);
      if (!inside && match.size == 0) match.id = bare_prefix_;
      if (match.id < 0) {  // one unknown part makes the whole word unknown
        ids.resize(before);
        ids.push_back(unk_);
        break;
      }
      ids.push_back(match.id);
      at += match.size;
    }
  }

 private:
  const int32_t unk_;
  const size_t max_characters_;
  const bool two_spellings_;  // of tokens: at the start of a word, and inside one
  ByteTrie first_, inside_;
  ByteTrie::Node word_start_ = ByteTrie::kRoot;  // where the prefix of each word ends
  int32_t bare_prefix_ = -1;                     // the token that is only this prefix
};

Status CheckTokens(const VocabSpec& spec) {
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.tokens[id].size() <= kMaxTokenBytes) continue;
    return InvalidArgument("token {} has {} bytes; at most {} are supported", id,
                           spec.tokens[id].size(), kMaxTokenBytes);
  }
  return Status();
}

}  // namespace

Result<std::unique_ptr<const TextModel>> CreateUnigramWords(const VocabSpec& spec) {
  RETURN_IF_ERROR(CheckTokens(spec));
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (std::isfinite(spec.pipeline.scores[id])) continue;
    return InvalidArgument("the score of token {} is not finite", id);
  }
  auto model = std::make_unique<UnigramWords>(spec);
  if (!model->can_encode_anything()) {
    return InvalidArgument("the vocabulary has neither an unknown token nor tokens for all bytes");
  }
  return std::unique_ptr<const TextModel>(std::move(model));
}

Result<std::unique_ptr<const TextModel>> CreateWordPieceWords(const VocabSpec& spec) {
  RETURN_IF_ERROR(CheckTokens(spec));
  if (spec.pipeline.unk < 0) return InvalidArgument("the vocabulary has no unknown token");
  return std::unique_ptr<const TextModel>(std::make_unique<WordPieceWords>(spec));
}

}  // namespace tokamak
