// How an embedding model turns a text's hidden states into a vector: from the sentence-transformers
// files of a Hugging Face directory, or from a GGUF file's pooling_type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tokamak/option_values.h"
#include "tokamak/status.h"
#include "weights/config.h"
#include "weights/gguf.h"

namespace tokamak {

struct EmbeddingSpec {
  Pooling pooling = Pooling::kMean;  // never kAuto
  bool normalize = true;             // scale to length 1
  int32_t max_tokens = 0;            // of a text, special tokens included; 0: the model's limit
  int32_t hidden_size = 0;           // that the pooling expects; 0: not stated
  // Texts to put before the input, by name.
  std::vector<std::pair<std::string, std::string>> prompts;
  std::string default_prompt;  // name of the prompt used by default; empty: none
  // Lengths to which vectors may be cut, ascending. If there are none, vectors may be cut to any
  // length with any_dimensions, and else not at all.
  std::vector<int32_t> dimensions;
  bool any_dimensions = false;
};

// Reads a directory with modules.json; absent if it has none. Strict: modules other than
// Transformer, Pooling and Normalize, other ways of pooling, and unknown fields are errors that
// name the file and the field. `config` is the directory's config.json.
Result<std::optional<EmbeddingSpec>> ReadEmbeddingSpec(const std::string& folder,
                                                       const JsonValue& config);

// Reads "<architecture>.pooling_type"; absent if the file has none or does not pool. kUnimplemented
// for reranking models.
Result<std::optional<EmbeddingSpec>> ReadGgufEmbeddingSpec(const GgufFile& file,
                                                           const std::string& architecture);

}  // namespace tokamak
