// Facts that tiktoken's rank files leave out, for the vocabularies of known models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tokamak {

struct TiktokenFamily {
  std::string_view name;
  size_t ranks;
  uint64_t digest;  // DigestOfRanks of the tokens; 0: recognized by `tokenizer_class` alone
  std::string_view tokenizer_class;
  std::string_view pattern;  // splits the text
  bool nfc;                  // normalize to form C first
  // Returns `count` special tokens; the first one's id follows the ranks.
  std::vector<std::string> (*special)(int32_t count);
  std::string_view bos, eos;
  bool add_bos;
};

// The family with these tokens (bytes, by rank), or null.
const TiktokenFamily* FindTiktokenFamily(const std::vector<std::string>& tokens,
                                         std::string_view tokenizer_class);
std::string TiktokenFamilyNames();

// A hash of each token's length and bytes.
uint64_t DigestOfRanks(const std::vector<std::string>& tokens);

}  // namespace tokamak
