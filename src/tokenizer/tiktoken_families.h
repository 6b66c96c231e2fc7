// What a file of tiktoken's ranks leaves out, for the vocabularies that models have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tokamak {

struct TiktokenFamily {
  std::string_view name;
  size_t ranks;     // how many
  uint64_t digest;  // of the tokens (DigestOfRanks); 0: told by `tokenizer_class` alone
  std::string_view tokenizer_class;
  std::string_view pattern;  // what text is split by
  bool nfc;                  // text is put in normalization form C first
  // The special tokens; the first follows the ranks, `count` in number.
  std::vector<std::string> (*special)(int32_t count);
  std::string_view bos, eos;
  bool add_bos;
};

// The family of these tokens (bytes, by rank), or null.
const TiktokenFamily* FindTiktokenFamily(const std::vector<std::string>& tokens,
                                         std::string_view tokenizer_class);
std::string TiktokenFamilyNames();

// Over each token's length and bytes.
uint64_t DigestOfRanks(const std::vector<std::string>& tokens);

}  // namespace tokamak
