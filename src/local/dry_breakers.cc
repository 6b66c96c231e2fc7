#include "local/dry_breakers.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "step/executor_limits.h"

namespace tokamak {
namespace {

constexpr size_t kMostRecent = 8;

// Calls use(rest) for each rest of `text` that would complete it behind a token that ends with its
// beginning.
template <typename Use>
Status ForEachRest(std::string_view token, std::string_view text, Use use) {
  const size_t longest = std::min(token.size(), text.size() - 1);
  for (size_t size = longest; size > 0; --size) {
    if (token.ends_with(text.substr(0, size))) RETURN_IF_ERROR(use(text.substr(size)));
  }
  return Status();
}

}  // namespace

Result<DryBreakerEncoder::Encoded> DryBreakerEncoder::Search(std::vector<std::string> texts) const {
  std::set<std::vector<int32_t>> sequences;
  std::map<std::string_view, std::vector<int32_t>> rests;
  const auto tokens_of = [&](std::string_view rest) -> Result<std::vector<int32_t>> {
    if (const auto known = rests.find(rest); known != rests.end()) return known->second;
    ASSIGN_OR_RETURN(std::vector<int32_t> tokens, tokenizer_->Encode(rest, {.add_special = false}));
    tokens.resize(std::min(tokens.size(), kMaxDrySequenceTokens - 1));
    return rests.emplace(rest, std::move(tokens)).first->second;
  };
  Encoded encoded;
  for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
    const std::string_view token = tokenizer_->TokenPiece(id);
    const bool contains = std::any_of(texts.begin(), texts.end(), [token](const auto& text) {
      return token.find(text) != std::string_view::npos;
    });
    if (contains) encoded.tokens.push_back(id);
    for (const std::string& text : texts) {
      if (token.find(text) != std::string_view::npos) continue;
      RETURN_IF_ERROR(ForEachRest(token, text, [&](std::string_view rest) -> Status {
        ASSIGN_OR_RETURN(std::vector<int32_t> sequence, tokens_of(rest));
        sequence.insert(sequence.begin(), id);
        sequences.insert(std::move(sequence));
        return Status();
      }));
    }
    if (sequences.size() > kMaxDrySequences) {
      return InvalidArgument(
          "dry_sequence_breakers: more than the {} sequences of tokens that are allowed spell "
          "these texts; give fewer or shorter ones",
          kMaxDrySequences);
    }
  }
  encoded.texts = std::move(texts);
  encoded.sequences.assign(sequences.begin(), sequences.end());
  return encoded;
}

Status DryBreakerEncoder::Encode(SamplingParams* params) {
  if (params->dry_multiplier == 0.0f || params->dry_sequence_breakers.empty()) return Status();
  if (tokenizer_ == nullptr) {
    return InvalidArgument(
        "dry_sequence_breakers: this model has no tokenizer, so it cannot find texts; set it to "
        "[]");
  }
  std::vector<std::string> texts = std::exchange(params->dry_sequence_breakers, {});
  const auto use = [params](const Encoded& encoded) {
    params->dry_breaker_tokens = encoded.tokens;
    params->dry_breaker_sequences = encoded.sequences;
  };
  {
    MutexLock lock(mutex_);
    for (const Encoded& encoded : recent_) {
      if (encoded.texts != texts) continue;
      use(encoded);
      return Status();
    }
  }
  ASSIGN_OR_RETURN(Encoded encoded, Search(std::move(texts)));
  use(encoded);
  MutexLock lock(mutex_);
  recent_.push_front(std::move(encoded));
  if (recent_.size() > kMostRecent) recent_.pop_back();
  return Status();
}

}  // namespace tokamak
