// The text normalization of BERT's tokenizer (Devlin et al. 2019, arXiv:1810.04805).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tokamak {

// ASCII that is not a letter, digit or space, and Unicode punctuation.
bool IsBertPunctuation(uint32_t code_point);

struct BertTextOptions {
  bool clean = true;               // drop control characters, turn white space into spaces
  bool isolate_ideographs = true;  // put spaces around each
  bool strip_accents = true;       // decompose canonically and drop nonspacing marks
  bool lowercase = true;
};
std::string NormalizeBert(std::string_view text, BertTextOptions options);

}  // namespace tokamak
