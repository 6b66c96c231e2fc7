// The compiled form of a PipelineSpec's encoding.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "tokamak/status.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// Immutable and thread-safe.
class Pipeline {
 public:
  // Requires one type and one entry of `in_model` per token. Keeps views of `spec.tokens`, which
  // must outlive it.
  static Result<std::unique_ptr<const Pipeline>> Create(const VocabSpec& spec);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Appends the ids of `text` (valid UTF-8), without the template's.
  Status Encode(std::string_view text, bool parse_special, std::vector<int32_t>& ids) const;

 private:
  struct Impl;
  explicit Pipeline(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace tokamak
