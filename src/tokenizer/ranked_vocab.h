// Vocabularies of byte strings by rank, as in tiktoken: two neighbours merge if together they are a
// token, the lowest rank first. Reference: the `tiktoken` library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokamak/status.h"
#include "tokenizer/vocab.h"

namespace tokamak {

struct RankedVocab {
  std::vector<std::string> tokens;                       // bytes, by rank
  int32_t first_id = 0;                                  // id of rank 0
  std::vector<std::pair<int32_t, std::string>> special;  // ids and spellings
  std::string pattern;                                   // splits the text
  bool nfc = false;                                      // normalize to form C first
};

// Returns the vocabulary with its pipeline. kInvalidArgument if a byte is not a token, a token
// occurs twice, or two tokens have the same id. Messages begin with `source`.
Result<VocabSpec> MakeRankedVocab(const RankedVocab& ranked, const std::string& source);

}  // namespace tokamak
