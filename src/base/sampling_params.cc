#include "tokamak/sampling_params.h"

#include <cmath>

#include "base/error.h"

namespace tokamak {
namespace {

constexpr size_t kMaxLogitBias = 1024;
constexpr size_t kMaxStopTokenIds = 1024;
constexpr size_t kMaxStopStrings = 64;
constexpr size_t kMaxStopBytes = 16384;  // all stop strings together
constexpr int32_t kMaxChoices = 128;
constexpr int32_t kMaxLogprobs = 20;

// NaN fails every comparison below.
Status CheckDistribution(const SamplingParams& p) {
  if (!(p.temperature >= 0.0f && p.temperature <= 1e4f)) {
    return InvalidArgument("temperature: must be in [0, 10000], got {}", p.temperature);
  }
  if (p.top_k < 0) return InvalidArgument("top_k: must be at least 0, got {}", p.top_k);
  if (!(p.top_p > 0.0f && p.top_p <= 1.0f)) {
    return InvalidArgument("top_p: must be in (0, 1], got {}", p.top_p);
  }
  if (!(p.min_p >= 0.0f && p.min_p <= 1.0f)) {
    return InvalidArgument("min_p: must be in [0, 1], got {}", p.min_p);
  }
  if (!(p.typical_p > 0.0f && p.typical_p <= 1.0f)) {
    return InvalidArgument("typical_p: must be in (0, 1], got {}", p.typical_p);
  }
  if (!(p.repetition_penalty > 0.0f && p.repetition_penalty <= 1e4f)) {
    return InvalidArgument("repetition_penalty: must be in (0, 10000], got {}",
                           p.repetition_penalty);
  }
  if (!(p.presence_penalty >= -2.0f && p.presence_penalty <= 2.0f)) {
    return InvalidArgument("presence_penalty: must be in [-2, 2], got {}", p.presence_penalty);
  }
  if (!(p.frequency_penalty >= -2.0f && p.frequency_penalty <= 2.0f)) {
    return InvalidArgument("frequency_penalty: must be in [-2, 2], got {}", p.frequency_penalty);
  }
  return Status();
}

Status CheckLogitBias(const SamplingParams& p, int32_t vocab_size) {
  if (p.logit_bias.size() > kMaxLogitBias) {
    return InvalidArgument("logit_bias: has {} entries, more than {}", p.logit_bias.size(),
                           kMaxLogitBias);
  }
  for (const auto& [token, bias] : p.logit_bias) {
    if (token < 0 || token >= vocab_size) {
      return InvalidArgument("logit_bias: token id {} is outside [0, {})", token, vocab_size);
    }
    if (!(bias >= -100.0f && bias <= 100.0f)) {
      return InvalidArgument("logit_bias: must be in [-100, 100], got {} for token {}", bias,
                             token);
    }
  }
  return Status();
}

Status CheckLength(const SamplingParams& p) {
  if (p.n < 1 || p.n > kMaxChoices) {
    return InvalidArgument("n: must be in [1, {}], got {}", kMaxChoices, p.n);
  }
  if (p.max_tokens && *p.max_tokens < 0) {
    return InvalidArgument("max_tokens: must be at least 0, got {}", *p.max_tokens);
  }
  if (p.min_tokens < 0) {
    return InvalidArgument("min_tokens: must be at least 0, got {}", p.min_tokens);
  }
  if (p.max_tokens && p.min_tokens > *p.max_tokens) {
    return InvalidArgument("min_tokens: {} is more than max_tokens, {}", p.min_tokens,
                           *p.max_tokens);
  }
  return Status();
}

Status CheckStop(const SamplingParams& p, int32_t vocab_size) {
  if (p.stop.size() > kMaxStopStrings) {
    return InvalidArgument("stop: has {} strings, more than {}", p.stop.size(), kMaxStopStrings);
  }
  size_t bytes = 0;
  for (const std::string& stop : p.stop) {
    if (stop.empty()) return InvalidArgument("stop: a stop string must not be empty");
    bytes += stop.size();
  }
  if (bytes > kMaxStopBytes) {
    return InvalidArgument("stop: {} bytes in all, more than {}", bytes, kMaxStopBytes);
  }
  if (p.stop_token_ids.size() > kMaxStopTokenIds) {
    return InvalidArgument("stop_token_ids: has {} entries, more than {}", p.stop_token_ids.size(),
                           kMaxStopTokenIds);
  }
  for (const int32_t token : p.stop_token_ids) {
    if (token < 0 || token >= vocab_size) {
      return InvalidArgument("stop_token_ids: token id {} is outside [0, {})", token, vocab_size);
    }
  }
  return Status();
}

Status CheckLogprobs(const char* name, std::optional<int32_t> logprobs) {
  if (logprobs && (*logprobs < 0 || *logprobs > kMaxLogprobs)) {
    return InvalidArgument("{}: must be in [0, {}], got {}", name, kMaxLogprobs, *logprobs);
  }
  return Status();
}

}  // namespace

Status Validate(const SamplingParams& params, int32_t vocab_size) {
  RETURN_IF_ERROR(CheckDistribution(params));
  RETURN_IF_ERROR(CheckLogitBias(params, vocab_size));
  RETURN_IF_ERROR(CheckLength(params));
  RETURN_IF_ERROR(CheckStop(params, vocab_size));
  RETURN_IF_ERROR(CheckLogprobs("logprobs", params.logprobs));
  return CheckLogprobs("prompt_logprobs", params.prompt_logprobs);
}

}  // namespace tokamak
