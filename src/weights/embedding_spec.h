// How the authors of an embedding model make a vector of a text's hidden states: the files of
// sentence-transformers in a Hugging Face directory, or a GGUF file's pooling_type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokamak/status.h"
#include "weights/config.h"
#include "weights/gguf.h"

namespace tokamak {

enum class Pooling {
  kMean,  // of all tokens, special ones included
  kCls,   // the first token
  kLast,  // the last token
};

// "mean", "cls" and "last".
std::string_view Name(Pooling pooling);
std::optional<Pooling> ParsePooling(std::string_view name);

struct EmbeddingSpec {
  Pooling pooling = Pooling::kMean;
  bool normalize = true;    // to length 1
  int32_t max_tokens = 0;   // of a text, special tokens included; 0: what the model can
  int32_t hidden_size = 0;  // that the pooling expects; 0: it does not say
  // What is put in front of a text, by name, and the one that is when none is named.
  std::vector<std::pair<std::string, std::string>> prompts;
  std::string default_prompt;  // a name in `prompts`; empty: none
  // Of vectors that may be cut: the lengths that the model was trained for, ascending; with
  // any_dimensions, every length. Empty and false: they may not.
  std::vector<int32_t> dimensions;
  bool any_dimensions = false;
};

// Of a directory with modules.json; nothing where it has none. Strict: modules other than a
// Transformer, a Pooling and a Normalize, ways of pooling other than the above and fields that are
// not known are errors that name the file and the field. `config` is the directory's config.json.
Result<std::optional<EmbeddingSpec>> ReadEmbeddingSpec(const std::string& folder,
                                                       const ConfigValue& config);

// Of a file whose metadata has "<architecture>.pooling_type"; nothing where it has none, or none of
// the tokens are to be pooled. kUnimplemented for reranking.
Result<std::optional<EmbeddingSpec>> ReadGgufEmbeddingSpec(const GgufFile& file,
                                                           const std::string& architecture);

}  // namespace tokamak
