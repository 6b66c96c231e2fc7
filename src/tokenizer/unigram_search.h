// Finds the most likely segmentation of a text into tokens (Kudo 2018, arXiv:1804.10959).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "tokenizer/byte_trie.h"

namespace tokamak {

class UnigramSearch {
 public:
  // An unknown character's log probability is this much below the least likely token's, as in
  // SentencePiece.
  static constexpr double kUnknownPenalty = 10.0;

  struct Token {
    std::string_view text;  // not empty; only read by the constructor
    int32_t id = -1;
    double score = 0;  // log probability
  };
  UnigramSearch() = default;
  // `round`: keep sums in single precision, as SentencePiece does.
  UnigramSearch(const std::vector<Token>& tokens, double unknown_score, bool round = false);

  // Calls `emit` with each part of `text` (valid UTF-8), in order, and its token, or -1 for a
  // character that no token covers. O(text × longest token).
  void Segment(std::string_view text, FunctionRef<void(std::string_view, int32_t)> emit) const;

 private:
  ByteTrie trie_;  // its ids are indices of the two vectors below
  std::vector<int32_t> ids_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  bool round_ = false;
};

}  // namespace tokamak
