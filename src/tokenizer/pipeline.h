// Encoding as a tokenizer.json describes it (pipeline_spec.h), compiled.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "tokamak/status.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// Immutable and safe to use from any number of threads.
class Pipeline {
 public:
  // `spec.pipeline` must be there; keeps views of `spec.tokens`, which must outlive it.
  // `spec.types` says which tokens are special: one per token.
  static Result<std::unique_ptr<const Pipeline>> Create(const VocabSpec& spec);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Appends the ids of `text` (valid UTF-8), without those of the template.
  Status Encode(std::string_view text, bool parse_special, std::vector<int32_t>& ids) const;

 private:
  struct Impl;
  explicit Pipeline(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace tokamak
