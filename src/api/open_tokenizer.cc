#include "api/open_tokenizer.h"

#include "api/vocab_from_gguf.h"
#include "base/error.h"

namespace tokamak {

Result<std::shared_ptr<const Tokenizer>> MakeTokenizer(const GgufFile& file) {
  if (!file.metadata().Has("tokenizer.ggml.model")) {
    return Unimplemented("{}: the file brings no tokenizer", file.name());
  }
  ASSIGN_OR_RETURN(VocabSpec vocab, VocabFromGguf(file));
  Result<std::shared_ptr<const Tokenizer>> tokenizer = Tokenizer::Create(std::move(vocab));
  if (!tokenizer.ok()) return tokenizer.status().WithContext(file.name());
  return tokenizer;
}

Result<std::shared_ptr<const Tokenizer>> OpenTokenizer(const std::string& path) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
  return MakeTokenizer(*file);
}

}  // namespace tokamak
