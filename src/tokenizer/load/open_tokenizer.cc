#include "tokenizer/load/open_tokenizer.h"

#include <sys/stat.h>

#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "tokenizer/load/vocab_from_gguf.h"
#include "tokenizer/load/vocab_from_hf.h"

namespace tokamak {

Result<std::shared_ptr<const Tokenizer>> MakeTokenizer(const GgufFile& file) {
  if (!file.metadata().Has("tokenizer.ggml.model")) {
    return Unimplemented("{}: the file contains no tokenizer", file.name());
  }
  ASSIGN_OR_RETURN(GgufVocab stored, VocabFromGguf(file));
  Result<VocabSpec> vocab = MakeGgufVocab(std::move(stored));
  if (!vocab.ok()) return vocab.status().WithContext(file.name());
  Result<std::shared_ptr<const Tokenizer>> tokenizer = Tokenizer::Create(*std::move(vocab));
  if (!tokenizer.ok()) return tokenizer.status().WithContext(file.name());
  return tokenizer;
}

namespace {

// Whether the file starts as every GGUF file does.
bool IsGguf(const std::string& path) {
  char magic[4] = {};
  const Result<File> file = File::Open(path);
  // GgufFile reports files that cannot be opened.
  if (!file.ok()) return true;
  return file->size() < sizeof magic || !file->ReadAt(0, magic, sizeof magic).ok() ||
         std::string_view(magic, sizeof magic) == "GGUF";
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Result<std::shared_ptr<const Tokenizer>> MakeHfTokenizer(const std::string& folder,
                                                         const std::vector<int32_t>& end_tokens) {
  ASSIGN_OR_RETURN(VocabSpec vocab, VocabFromHf(folder, end_tokens));
  Result<std::shared_ptr<const Tokenizer>> tokenizer = Tokenizer::Create(std::move(vocab));
  if (!tokenizer.ok()) return tokenizer.status().WithContext(HfTokenizerFile(folder));
  return tokenizer;
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> MakeTokenizer(const Checkpoint& checkpoint) {
  if (checkpoint.gguf != nullptr && checkpoint.gguf->metadata().Has("tokenizer.ggml.model")) {
    return MakeTokenizer(*checkpoint.gguf);
  }
  if (!checkpoint.directory.empty() && !HfTokenizerFile(checkpoint.directory).empty()) {
    return MakeHfTokenizer(checkpoint.directory, checkpoint.generation.eos_token_ids);
  }
  return std::shared_ptr<const Tokenizer>();
}

Result<std::shared_ptr<const Tokenizer>> OpenTokenizer(const std::string& path) {
  if (IsDirectory(path)) return MakeHfTokenizer(path, {});
  if (!IsGguf(path)) {
    ASSIGN_OR_RETURN(VocabSpec vocab, VocabFromTokenizerFile(path));
    Result<std::shared_ptr<const Tokenizer>> tokenizer = Tokenizer::Create(std::move(vocab));
    if (!tokenizer.ok()) return tokenizer.status().WithContext(path);
    return tokenizer;
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
  return MakeTokenizer(*file);
}

}  // namespace tokamak
