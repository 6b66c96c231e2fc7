// Text as BERT's tokenizer has it (Devlin et al. 2019, arXiv:1810.04805).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tokamak {

// ASCII that is neither letter, digit nor space, and Unicode's punctuation.
bool IsBertPunctuation(uint32_t code_point);

struct BertTextOptions {
  bool clean = true;               // no control characters; white space becomes spaces
  bool isolate_ideographs = true;  // spaces around each
  bool strip_accents = true;       // canonical decomposition without nonspacing marks
  bool lowercase = true;
};
std::string NormalizeBert(std::string_view text, BertTextOptions options);

}  // namespace tokamak
