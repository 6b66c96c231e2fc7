#include "server/openai/request_limits.h"

#include <algorithm>

#include "base/error.h"

namespace tokamak {

Status CheckJsonShape(std::string_view body) {
  int depth = 0;
  size_t values = 1;
  for (size_t i = 0; i < body.size(); ++i) {
    switch (body[i]) {
      case '"':  // skip the string
        for (++i; i < body.size() && body[i] != '"'; ++i) {
          if (body[i] == '\\') ++i;
        }
        break;
      case '[':
      case '{':
        ++values;
        if (++depth > kMaxJsonDepth) {
          return InvalidArgument("the body nests deeper than {} levels", kMaxJsonDepth);
        }
        break;
      case ']':
      case '}':
        --depth;
        break;
      case ',':
        ++values;
        break;
      default:
        break;
    }
    if (values > kMaxJsonValues) {
      return InvalidArgument("the body holds more than {} values", kMaxJsonValues);
    }
  }
  return Status();
}

Status ApplyLimits(const RequestLimits& limits, CompletionRequest& request) {
  SamplingParams& sampling = request.sampling;
  // A conversation is one prompt, which `prompts` does not hold yet.
  const auto prompts = static_cast<int64_t>(request.chat ? 1 : request.prompts.size());
  if (sampling.n > 0 && prompts * sampling.n > limits.max_choices) {
    return InvalidArgument(
        "n: at most {} choices in one request (n × prompts, --max-choices), got {}",
        limits.max_choices, prompts * sampling.n);
  }
  const int32_t width = sampling.beam_search ? sampling.beam_search->width : 0;
  if (width > 0 && prompts * width > limits.max_choices) {
    return InvalidArgument(
        "beam_search.width: at most {} beams in one request (beams × prompts, --max-choices), got "
        "{}",
        limits.max_choices, prompts * width);
  }
  if (limits.max_output_tokens > 0) {
    if (request.max_tokens_given && *sampling.max_tokens > limits.max_output_tokens) {
      return InvalidArgument("max_tokens: at most {} (--max-output-tokens), got {}",
                             limits.max_output_tokens, *sampling.max_tokens);
    }
    // A default above the limit is no error; it is lowered.
    sampling.max_tokens =
        std::min(sampling.max_tokens.value_or(limits.max_output_tokens), limits.max_output_tokens);
  }
  if (sampling.stop.size() > kMaxStops) {
    return InvalidArgument("stop: has more than {} entries", kMaxStops);
  }
  for (size_t i = 0; i < sampling.stop.size(); ++i) {
    if (sampling.stop[i].size() > kMaxStopBytes) {
      return InvalidArgument("stop[{}]: is longer than {} bytes", i, kMaxStopBytes);
    }
  }
  if (sampling.logit_bias.size() > kMaxLogitBias) {
    return InvalidArgument("logit_bias: has more than {} entries", kMaxLogitBias);
  }
  if (request.cache_salt.size() > kMaxCacheSaltBytes) {
    return InvalidArgument("cache_salt: is longer than {} bytes", kMaxCacheSaltBytes);
  }
  return Status();
}

Status CheckResponseBytes(const RequestLimits& limits, std::string_view path, uint64_t bytes) {
  const auto most = static_cast<uint64_t>(limits.max_answer_bytes);
  if (bytes <= most) return Status();
  return InvalidArgument(
      "{}: the answer would have up to {} bytes, more than the {} allowed (--max-answer-bytes); "
      "ask for less at a time",
      path, bytes, most);
}

}  // namespace tokamak
