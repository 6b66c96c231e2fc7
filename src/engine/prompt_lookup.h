// PromptLookup: finds where the last tokens of a growing text occurred before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/prefix_cache.h"

namespace tokamak {

// Prompt lookup decoding (Saxena, 2023): what followed the same tokens earlier probably follows
// again. A token is added in a time that depends neither on the length of the text nor, as far as
// tables can help it, on the text; the memory is about 16 bytes for each token and length of match.
class PromptLookup {
 public:
  // A match has at least `min_match` tokens. Of several places that with the longest match counts,
  // and of equally long ones the latest; all matches of `max_match` and more are equally long.
  PromptLookup(int32_t min_match, int32_t max_match);

  // Takes what has been added to the text since the last call.
  void Extend(std::span<const ContentId> text);

  struct Match {
    int32_t end = 0;     // index of the token that followed; 0: there is no match
    int32_t length = 0;  // tokens that are the same, up to kMaxLength
  };
  static constexpr int32_t kMaxLength = 32;

  // The match for the end of the text.
  const Match& match() const { return match_; }
  int32_t size() const { return size_; }

 private:
  struct Entry {
    uint32_t hash = 0;  // of the tokens before `end`, so many as the match has
    int32_t end = 0;    // 0: empty
  };

  // Puts `end` into the place of the hash. Returns what was there for the same hash, or 0.
  int32_t Exchange(uint32_t hash, int32_t end);
  void Grow();

  const int32_t min_match_;
  const int32_t max_match_;
  int32_t size_ = 0;  // tokens of the text
  Match match_;
  std::vector<Entry> entries_;  // a power of two, or none
  size_t num_entries_ = 0;
};

}  // namespace tokamak
