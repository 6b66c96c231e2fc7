#include "tokenizer/unigram_search.h"

#include <limits>
#include <utility>

#include "base/utf8.h"

namespace tokamak {

UnigramSearch::UnigramSearch(const std::vector<Token>& tokens, double unknown_score, bool round)
    : unknown_score_(round ? static_cast<float>(unknown_score) : unknown_score), round_(round) {
  std::vector<std::pair<std::string_view, int32_t>> strings;
  strings.reserve(tokens.size());
  for (const Token& token : tokens) {
    strings.emplace_back(token.text, static_cast<int32_t>(ids_.size()));
    ids_.push_back(token.id);
    scores_.push_back(token.score);
  }
  trie_ = ByteTrie(std::move(strings));
}

// Viterbi, from left to right.
void UnigramSearch::Segment(std::string_view text,
                            FunctionRef<void(std::string_view, int32_t)> emit) const {
  // The best segmentation of the text up to a place: its last token and where that begins.
  struct Best {
    double score = -std::numeric_limits<double>::infinity();
    uint32_t begin = 0;
    int32_t id = -1;  // -1: an unknown character
  };
  std::vector<Best> best(text.size() + 1);
  best[0].score = 0;
  const auto offer = [&](size_t end, double score, size_t begin, int32_t id) {
    if (round_) score = static_cast<float>(score);
    if (score > best[end].score) best[end] = {score, static_cast<uint32_t>(begin), id};
  };
  for (size_t begin = 0; begin < text.size();) {
    const size_t character = Utf8Length(text[begin]);
    const double here = best[begin].score;
    bool covered = false;  // whether the character is a token by itself
    ByteTrie::Node node = trie_.First(text[begin]);
    for (size_t size = 1; node != ByteTrie::kNone; ++size) {
      if (const int32_t at = trie_.Id(node); at >= 0) {
        covered |= size == character;
        offer(begin + size, here + scores_[at], begin, ids_[at]);
      }
      if (begin + size == text.size()) break;
      node = trie_.Next(node, text[begin + size]);
    }
    if (!covered) offer(begin + character, here + unknown_score_, begin, -1);
    begin += character;
  }
  std::vector<std::pair<uint32_t, uint32_t>> parts;  // [begin, end), last first
  for (size_t end = text.size(); end > 0; end = best[end].begin) {
    parts.emplace_back(best[end].begin, static_cast<uint32_t>(end));
  }
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    emit(text.substr(part->first, part->second - part->first), best[part->second].id);
  }
}

}  // namespace tokamak
