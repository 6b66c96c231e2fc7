// Turns SamplingParams::dry_sequence_breakers into tokens.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "tokamak/sampling_params.h"
#include "tokamak/status.h"
#include "tokenizer/tokenizer.h"

namespace tokamak {

// Thread-safe. Searching the vocabulary takes milliseconds, so it keeps the last results.
class DryBreakerEncoder {
 public:
  // Null: the model has no tokenizer.
  explicit DryBreakerEncoder(std::shared_ptr<const Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}

  // If DRY is on, sets dry_breaker_tokens and dry_breaker_sequences and clears the texts. As
  // llama.cpp does: a token that contains a text is a breaker; one that ends with the beginning of
  // a text is one together with the tokens (20 at most) of the rest. kInvalidArgument, starting
  // with "dry_sequence_breakers", if there is no tokenizer or they match in too many places.
  Status Encode(SamplingParams* params);

 private:
  struct Encoded {
    std::vector<std::string> texts;
    std::vector<int32_t> tokens;
    std::vector<std::vector<int32_t>> sequences;
  };
  Result<Encoded> Search(std::vector<std::string> texts) const;

  const std::shared_ptr<const Tokenizer> tokenizer_;
  Mutex mutex_;
  std::deque<Encoded> recent_ GUARDED_BY(mutex_);
};

}  // namespace tokamak
