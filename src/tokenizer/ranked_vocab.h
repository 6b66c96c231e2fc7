// Vocabularies of byte sequences by rank, as tiktoken has them: two neighbours merge when their
// bytes together are a token, the lowest rank first. Reference: the `tiktoken` library.
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
  int32_t first_id = 0;                                  // of rank 0
  std::vector<std::pair<int32_t, std::string>> special;  // ids and spellings
  std::string pattern;                                   // what text is split by
  bool nfc = false;  // text is put in normalization form C first
};

// The vocabulary and its pipeline. kInvalidArgument when a byte is no token, a token occurs twice
// or two have one id; messages begin with `source`.
Result<VocabSpec> MakeRankedVocab(const RankedVocab& ranked, const std::string& source);

}  // namespace tokamak
