#include "tokenizer/tokenizer_file.h"

#include "base/error.h"
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/tekken.h"
#include "tokenizer/tiktoken.h"
#include "tokenizer/tokenizer_json.h"

namespace tokamak {

Result<VocabSpec> ParseTokenizerFile(std::string_view bytes, const std::string& source,
                                     std::string_view tokenizer_class) {
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && bytes[first] == '{') {
    // tekken.json requires this name; no tokenizer.json has it.
    const bool tekken = bytes.find("\"default_num_special_tokens\"") != std::string_view::npos;
    return tekken ? ParseTekken(bytes, source) : ParseTokenizerJson(bytes, source);
  }
  if (IsSentencePieceModel(bytes)) return ParseSentencePieceModel(bytes, source);
  if (IsTiktoken(bytes)) return ParseTiktoken(bytes, source, tokenizer_class);
  return Unimplemented(
      "{}: is not a tokenizer.json, a tekken.json, a SentencePiece model, or a tiktoken file of "
      "ranks",
      source);
}

}  // namespace tokamak
