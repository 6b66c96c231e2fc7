// Validate(SamplingParams): checks every field's range before anything is queued.
#include <fmt/ranges.h>

#include <cmath>
#include <string_view>

#include "base/error.h"
#include "step/executor_limits.h"
#include "tokamak/sampling_params.h"

namespace tokamak {
namespace {

constexpr int32_t kMaxChoices = 128;
// Limits on what one request adds to the work per token or to the queue's memory.
constexpr size_t kMaxStopStrings = 64;
constexpr size_t kMaxStopBytes = 4096;
constexpr size_t kMaxBadWords = kMaxBadWordSequences / 2;  // each may have two sequences
constexpr size_t kMaxBadWordBytes = 256;
constexpr size_t kMaxDryBreakers = 64;
constexpr size_t kMaxDryBreakerBytes = 40;

// NaN fails every comparison, so the tests state what must hold.
Status InRange(std::string_view field, float value, float low, float high) {
  if (value >= low && value <= high) return Status();
  return InvalidArgument("{}: must be in [{}, {}], got {}", field, low, high, value);
}

Status AboveZero(std::string_view field, float value, float high) {
  if (value > 0 && value <= high) return Status();
  return InvalidArgument("{}: must be in (0, {}], got {}", field, high, value);
}

Status CountInRange(std::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return Status();
  return InvalidArgument("{}: must be in [{}, {}], got {}", field, low, high, value);
}

Status NotNegative(std::string_view field, int64_t value) {
  if (value >= 0) return Status();
  return InvalidArgument("{}: must not be negative, got {}", field, value);
}

Status FiniteNotNegative(std::string_view field, float value) {
  if (value >= 0 && std::isfinite(value)) return Status();
  return InvalidArgument("{}: must be finite and not negative, got {}", field, value);
}

Status ValidateIds(std::string_view field, const std::vector<int32_t>& ids, int32_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return InvalidArgument("{}[{}]: token id {} is not in [0, {})", field, i, ids[i], vocab_size);
    }
  }
  return Status();
}

Status ValidateDistribution(const SamplingParams& p) {
  RETURN_IF_ERROR(FiniteNotNegative("temperature", p.temperature));
  RETURN_IF_ERROR(FiniteNotNegative("dynatemp_range", p.dynatemp_range));
  RETURN_IF_ERROR(FiniteNotNegative("dynatemp_exponent", p.dynatemp_exponent));
  RETURN_IF_ERROR(FiniteNotNegative("top_n_sigma", p.top_n_sigma));
  RETURN_IF_ERROR(NotNegative("top_k", p.top_k));
  RETURN_IF_ERROR(AboveZero("top_p", p.top_p, 1.0f));
  RETURN_IF_ERROR(InRange("min_p", p.min_p, 0.0f, 1.0f));
  RETURN_IF_ERROR(AboveZero("typical_p", p.typical_p, 1.0f));
  RETURN_IF_ERROR(InRange("xtc_probability", p.xtc_probability, 0.0f, 1.0f));
  RETURN_IF_ERROR(InRange("xtc_threshold", p.xtc_threshold, 0.0f, 1.0f));
  if (!(p.repetition_penalty > 0) || std::isinf(p.repetition_penalty)) {
    return InvalidArgument("repetition_penalty: must be finite and above 0, got {}",
                           p.repetition_penalty);
  }
  RETURN_IF_ERROR(InRange("presence_penalty", p.presence_penalty, -2.0f, 2.0f));
  RETURN_IF_ERROR(InRange("frequency_penalty", p.frequency_penalty, -2.0f, 2.0f));
  return CountInRange("repeat_last_n", p.repeat_last_n, -1, kMaxRepeatLastN);
}

Status ValidateDry(const SamplingParams& p, int32_t vocab_size) {
  RETURN_IF_ERROR(FiniteNotNegative("dry_multiplier", p.dry_multiplier));
  if (!(p.dry_base >= 1) || std::isinf(p.dry_base)) {
    return InvalidArgument("dry_base: must be finite and at least 1, got {}", p.dry_base);
  }
  RETURN_IF_ERROR(
      CountInRange("dry_allowed_length", p.dry_allowed_length, 0, kMaxDryAllowedLength));
  RETURN_IF_ERROR(CountInRange("dry_penalty_last_n", p.dry_penalty_last_n, -1, kMaxRepeatLastN));
  if (p.dry_sequence_breakers.size() > kMaxDryBreakers) {
    return InvalidArgument("dry_sequence_breakers: has {} texts, more than the {} allowed",
                           p.dry_sequence_breakers.size(), kMaxDryBreakers);
  }
  for (size_t i = 0; i < p.dry_sequence_breakers.size(); ++i) {
    const size_t bytes = p.dry_sequence_breakers[i].size();
    if (bytes == 0 || bytes > kMaxDryBreakerBytes) {
      return InvalidArgument("dry_sequence_breakers[{}]: must have 1 to {} bytes, has {}", i,
                             kMaxDryBreakerBytes, bytes);
    }
  }
  RETURN_IF_ERROR(ValidateIds("dry_breaker_tokens", p.dry_breaker_tokens, vocab_size));
  if (p.dry_breaker_tokens.size() > static_cast<size_t>(vocab_size) ||
      p.dry_breaker_sequences.size() > kMaxDrySequences) {
    return InvalidArgument(
        "dry_sequence_breakers: match in {} tokens and {} sequences of tokens, more than the {} "
        "and {} allowed; give fewer or shorter texts",
        p.dry_breaker_tokens.size(), p.dry_breaker_sequences.size(), vocab_size, kMaxDrySequences);
  }
  for (size_t i = 0; i < p.dry_breaker_sequences.size(); ++i) {
    const std::vector<int32_t>& ids = p.dry_breaker_sequences[i];
    if (ids.size() < 2 || ids.size() > kMaxDrySequenceTokens) {
      return InvalidArgument("dry_breaker_sequences[{}]: must have 2 to {} tokens, has {}", i,
                             kMaxDrySequenceTokens, ids.size());
    }
    RETURN_IF_ERROR(ValidateIds(fmt::format("dry_breaker_sequences[{}]", i), ids, vocab_size));
  }
  return Status();
}

Status ValidateBadWords(const SamplingParams& p, int32_t vocab_size) {
  if (p.bad_words.size() > kMaxBadWords) {
    return InvalidArgument("bad_words: has {} texts, more than the {} allowed", p.bad_words.size(),
                           kMaxBadWords);
  }
  for (size_t i = 0; i < p.bad_words.size(); ++i) {
    if (p.bad_words[i].find_first_not_of(' ') == std::string::npos) {
      return InvalidArgument("bad_words[{}]: must have a character other than a space", i);
    }
    if (p.bad_words[i].size() > kMaxBadWordBytes) {
      return InvalidArgument("bad_words[{}]: has {} bytes, more than the {} allowed", i,
                             p.bad_words[i].size(), kMaxBadWordBytes);
    }
  }
  if (p.bad_words_ids.size() > kMaxBadWordSequences) {
    return InvalidArgument("bad_words_ids: has {} sequences, more than the {} allowed",
                           p.bad_words_ids.size(), kMaxBadWordSequences);
  }
  for (size_t i = 0; i < p.bad_words_ids.size(); ++i) {
    const std::vector<int32_t>& ids = p.bad_words_ids[i];
    if (ids.empty() || ids.size() > kMaxBadWordBytes) {
      return InvalidArgument("bad_words_ids[{}]: must have 1 to {} tokens, has {}", i,
                             kMaxBadWordBytes, ids.size());
    }
    RETURN_IF_ERROR(ValidateIds(fmt::format("bad_words_ids[{}]", i), ids, vocab_size));
  }
  return Status();
}

Status ValidateTokens(const SamplingParams& p, int32_t vocab_size) {
  if (p.logit_bias.size() > kMaxBiases) {
    return InvalidArgument("logit_bias: has {} entries, more than the {} allowed",
                           p.logit_bias.size(), kMaxBiases);
  }
  for (const auto& [token, bias] : p.logit_bias) {
    if (token < 0 || token >= vocab_size) {
      return InvalidArgument("logit_bias.{}: the token id is not in [0, {})", token, vocab_size);
    }
    if (!(bias >= -100.0f && bias <= 100.0f)) {
      return InvalidArgument("logit_bias.{}: must be in [-100, 100], got {}", token, bias);
    }
  }
  if (p.allowed_token_ids.size() > static_cast<size_t>(vocab_size)) {
    return InvalidArgument("allowed_token_ids: has {} ids, more than the vocabulary's {}",
                           p.allowed_token_ids.size(), vocab_size);
  }
  RETURN_IF_ERROR(ValidateIds("allowed_token_ids", p.allowed_token_ids, vocab_size));
  RETURN_IF_ERROR(ValidateDry(p, vocab_size));
  return ValidateBadWords(p, vocab_size);
}

Status ValidateEnds(const SamplingParams& p, int32_t vocab_size) {
  if (p.max_tokens) RETURN_IF_ERROR(NotNegative("max_tokens", *p.max_tokens));
  RETURN_IF_ERROR(NotNegative("min_tokens", p.min_tokens));
  if (p.max_tokens && p.min_tokens > *p.max_tokens) {
    return InvalidArgument("min_tokens: {} is more than max_tokens, {}", p.min_tokens,
                           *p.max_tokens);
  }
  if (p.stop.size() > kMaxStopStrings) {
    return InvalidArgument("stop: has {} strings, more than the {} allowed", p.stop.size(),
                           kMaxStopStrings);
  }
  for (size_t i = 0; i < p.stop.size(); ++i) {
    if (p.stop[i].empty()) return InvalidArgument("stop[{}]: must not be empty", i);
    if (p.stop[i].size() > kMaxStopBytes) {
      return InvalidArgument("stop[{}]: has {} bytes, more than the {} allowed", i,
                             p.stop[i].size(), kMaxStopBytes);
    }
  }
  if (p.shown_special_tokens.size() > kMaxStopTokens) {
    return InvalidArgument("shown_special_tokens: has {} ids, more than the {} allowed",
                           p.shown_special_tokens.size(), kMaxStopTokens);
  }
  if (p.stop_token_ids.size() > kMaxStopTokens) {
    return InvalidArgument("stop_token_ids: has {} ids, more than the {} allowed",
                           p.stop_token_ids.size(), kMaxStopTokens);
  }
  return ValidateIds("stop_token_ids", p.stop_token_ids, vocab_size);
}

Status ValidateBeamSearch(const SamplingParams& p) {
  const BeamSearchParams& beams = *p.beam_search;
  RETURN_IF_ERROR(CountInRange("beam_search.width", beams.width, p.n, kMaxChoices));
  RETURN_IF_ERROR(InRange("length_penalty", beams.length_penalty, -100.0f, 100.0f));
  if (p.max_tokens == 0) {
    return InvalidArgument("max_tokens: must be at least 1 with beam search, got 0");
  }
  return Status();
}

}  // namespace

void SamplingDefaults::ApplyTo(SamplingParams& params) const {
  ForEachField([&](const char*, auto field, auto param) {
    if (this->*field) params.*param = *(this->*field);
  });
}

void SamplingDefaults::Override(const SamplingDefaults& others) {
  ForEachField([&](const char*, auto field, auto) {
    if (others.*field) this->*field = others.*field;
  });
}

std::string SamplingDefaults::ToString() const {
  std::string out;
  ForEach([&](const char* name, const auto& value) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name, value);
  });
  return out;
}

Status Validate(const SamplingParams& params, int32_t vocab_size, int32_t max_logprobs) {
  RETURN_IF_ERROR(ValidateDistribution(params));
  RETURN_IF_ERROR(ValidateTokens(params, vocab_size));
  RETURN_IF_ERROR(CountInRange("n", params.n, 1, kMaxChoices));
  RETURN_IF_ERROR(ValidateEnds(params, vocab_size));
  if (params.beam_search) RETURN_IF_ERROR(ValidateBeamSearch(params));
  if (params.thinking_token_budget) {
    RETURN_IF_ERROR(NotNegative("thinking_token_budget", *params.thinking_token_budget));
  }
  if (params.logprobs) {
    RETURN_IF_ERROR(CountInRange("logprobs", *params.logprobs, 0, max_logprobs));
  }
  if (params.prompt_logprobs) {
    RETURN_IF_ERROR(CountInRange("prompt_logprobs", *params.prompt_logprobs, 0, max_logprobs));
  }
  return Status();
}

}  // namespace tokamak
