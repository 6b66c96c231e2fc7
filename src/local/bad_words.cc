#include "local/bad_words.h"

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tokamak {

Status EncodeBadWords(const Tokenizer* tokenizer, SamplingParams* params) {
  if (params->bad_words.empty()) return Status();
  if (tokenizer == nullptr) {
    return InvalidArgument(
        "bad_words: this model has no tokenizer, so it knows no words; use bad_words_ids");
  }
  const std::vector<std::string> words = std::exchange(params->bad_words, {});
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string word = words[i].substr(words[i].find_first_not_of(' '));
    const EncodeOptions options = {.add_special = false, .parse_special = true};
    ASSIGN_OR_RETURN(std::vector<int32_t> plain, tokenizer->Encode(word, options));
    ASSIGN_OR_RETURN(std::vector<int32_t> spaced, tokenizer->Encode(" " + word, options));
    if (plain.empty()) return InvalidArgument("bad_words[{}]: has no tokens", i);
    const bool joined = spaced.size() == plain.size() && spaced.front() != plain.front();
    params->bad_words_ids.push_back(std::move(plain));
    if (joined) params->bad_words_ids.push_back(std::move(spaced));
  }
  return Status();
}

}  // namespace tokamak
