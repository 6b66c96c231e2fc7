#include "tokenizer/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "tokenizer/byte_fallback.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/escaped_space.h"
#include "tokenizer/utf8.h"

namespace tokamak {
namespace {

// Longer tokens are refused, which bounds the time to O(text × this).
constexpr size_t kMaxTokenBytes = 1024;
// How much less likely than the least likely token an unknown character is (SentencePiece).
constexpr double kUnknownPenalty = 10.0;

class Unigram final : public TextModel {
 public:
  Unigram(const VocabSpec& spec, const std::vector<std::string>& pieces, CharsMap charsmap);
  Status Encode(std::string_view text, bool starts, std::vector<int32_t>& ids) const override;
  bool can_encode_anything() const { return bytes_.complete(); }

 private:
  // The best way to write the text up to a place: its last token, and where that begins.
  struct Best {
    double score = -std::numeric_limits<double>::infinity();
    uint32_t begin = 0;
    int32_t id = -1;  // -1: an unknown character
  };
  std::string Normalize(std::string_view text) const;
  std::vector<Best> Search(std::string_view text) const;

  const bool add_space_, merge_spaces_;
  const CharsMap charsmap_;
  const std::vector<float> scores_;
  const ByteFallback bytes_;
  ByteTrie trie_;
  double unknown_score_ = 0;
};

Unigram::Unigram(const VocabSpec& spec, const std::vector<std::string>& pieces, CharsMap charsmap)
    : add_space_(spec.add_space_prefix),
      merge_spaces_(spec.remove_extra_whitespaces),
      charsmap_(std::move(charsmap)),
      scores_(spec.scores),
      bytes_(spec, pieces, spec.special.unk) {
  std::vector<std::pair<std::string_view, int32_t>> tokens;
  double lowest = std::numeric_limits<float>::max();
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const TokenType type = spec.types[id];
    if (type == TokenType::kNormal) lowest = std::min<double>(lowest, scores_[id]);
    const bool found_in_text = type == TokenType::kNormal || type == TokenType::kUnused;
    if (found_in_text && !spec.tokens[id].empty()) {
      tokens.emplace_back(spec.tokens[id], static_cast<int32_t>(id));
    }
  }
  trie_ = ByteTrie(std::move(tokens));
  unknown_score_ = lowest - kUnknownPenalty;
}

// Applies the charsmap; spells spaces; adds, and where asked for removes, spaces at words' edges.
std::string Unigram::Normalize(std::string_view text) const {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  if (!merge_spaces_ && add_space_) out = kEscapedSpace;
  bool in_word = false;
  bool any = false;
  const auto put = [&](std::string_view part) {
    for (const char c : part) {
      if (c == ' ') {
        in_word = false;
        if (!merge_spaces_) out += kEscapedSpace;
        continue;
      }
      if (!in_word && merge_spaces_ && (any || add_space_)) out += kEscapedSpace;
      in_word = any = true;
      out.push_back(c);
    }
  };
  while (!text.empty()) {
    const CharsMap::Rule rule = charsmap_.Longest(text);
    const size_t size = rule.size > 0 ? rule.size : Utf8Length(text[0]);
    put(rule.size > 0 ? rule.replacement : text.substr(0, size));
    text.remove_prefix(size);
  }
  return out;
}

// Viterbi, from left to right. Returns one entry per offset in `text`, [text.size() + 1].
std::vector<Unigram::Best> Unigram::Search(std::string_view text) const {
  std::vector<Best> best(text.size() + 1);
  best[0].score = 0;
  const auto offer = [&](size_t end, double score, size_t begin, int32_t id) {
    if (score > best[end].score) best[end] = {score, static_cast<uint32_t>(begin), id};
  };
  for (size_t begin = 0; begin < text.size();) {
    const size_t character = Utf8Length(text[begin]);
    const double here = best[begin].score;
    bool covered = false;  // the character is a token by itself
    ByteTrie::Node node = trie_.First(text[begin]);
    for (size_t size = 1; node != ByteTrie::kNone; ++size) {
      if (const int32_t id = trie_.Id(node); id >= 0) {
        covered |= size == character;
        offer(begin + size, here + scores_[id], begin, id);
      }
      if (begin + size == text.size()) break;
      node = trie_.Next(node, text[begin + size]);
    }
    if (!covered) offer(begin + character, here + unknown_score_, begin, -1);
    begin += character;
  }
  return best;
}

Status Unigram::Encode(std::string_view text, bool /*starts*/, std::vector<int32_t>& ids) const {
  const std::string normalized = Normalize(text);
  const std::vector<Best> best = Search(normalized);
  std::vector<std::pair<uint32_t, uint32_t>> parts;  // [begin, end), last first
  for (size_t end = normalized.size(); end > 0; end = best[end].begin) {
    parts.emplace_back(best[end].begin, static_cast<uint32_t>(end));
  }
  bool unknown = false;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    const int32_t id = best[part->second].id;
    if (id >= 0) {
      ids.push_back(id);
      unknown = false;
    } else {
      unknown = bytes_.Append(
          std::string_view(normalized).substr(part->first, part->second - part->first), unknown,
          ids);
    }
  }
  return Status();
}

}  // namespace

Result<std::unique_ptr<const TextModel>> CreateUnigram(const VocabSpec& spec,
                                                       const std::vector<std::string>& pieces) {
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!std::isfinite(spec.scores[id]))
      return InvalidArgument("token {}'s score is not finite", id);
    if (spec.tokens[id].size() > kMaxTokenBytes) {
      return InvalidArgument("token {} has {} bytes; at most {} are supported", id,
                             spec.tokens[id].size(), kMaxTokenBytes);
    }
  }
  ASSIGN_OR_RETURN(CharsMap charsmap, CharsMap::Create(spec.precompiled_charsmap));
  auto model = std::make_unique<Unigram>(spec, pieces, std::move(charsmap));
  if (!model->can_encode_anything()) {
    return InvalidArgument("the vocabulary has neither an unknown token nor tokens for all bytes");
  }
  return std::unique_ptr<const TextModel>(std::move(model));
}

}  // namespace tokamak
