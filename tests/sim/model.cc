#include "sim/model.h"

#include <algorithm>

namespace tokamak::sim {

bool LetterDecoder::Append(TokenId token, bool may_stop, std::string* text) {
  held_ += Letter(token);
  if (!stop_.empty() && may_stop && held_ == stop_) return true;
  const size_t keep = stop_.empty() ? 0 : 1;
  while (held_.size() > keep) {
    *text += held_.front();
    held_.erase(0, 1);
  }
  return false;
}

void LetterDecoder::Flush(std::string* text) {
  *text += held_;
  held_.clear();
}

Expectation Expect(const TokenModel& model, const RequestSpec& spec, int32_t choice,
                   int32_t max_context) {
  const SamplingParams& p = spec.sampling;
  const uint64_t seed = *p.seed;
  uint64_t prefix = TokenModel::Root(seed);
  for (const TokenId token : spec.prompt) prefix = TokenModel::Extend(prefix, token);
  std::vector<TokenId> ends = p.stop_token_ids;
  if (!p.ignore_eos) ends.insert(ends.end(), spec.eos_ids.begin(), spec.eos_ids.end());
  const auto is_end = [&](TokenId token) {
    return std::find(ends.begin(), ends.end(), token) != ends.end();
  };
  const int32_t room =
      std::min(max_context, spec.max_length) - static_cast<int32_t>(spec.prompt.size());
  const int32_t most = std::min(room, p.max_tokens.value_or(room));
  Expectation e;
  std::string all;
  while (static_cast<int32_t>(e.tokens.size()) < most) {
    const int32_t generated = static_cast<int32_t>(e.tokens.size());
    e.health = model.Health(prefix, seed);
    if (e.health != RowHealth::kOk) {
      e.reason = FinishReason::kError;
      break;
    }
    TokenId token = model.Draw(prefix, seed, choice, 0);
    for (int32_t attempt = 1; generated < p.min_tokens && is_end(token); ++attempt) {
      token = model.Draw(prefix, seed, choice, attempt);
    }
    if (is_end(token)) {
      e.reason = FinishReason::kStop;
      break;
    }
    e.tokens.push_back(token);
    e.logprobs.push_back(TokenModel::Logprob(prefix, token));
    prefix = TokenModel::Extend(prefix, token);
    all += Letter(token);
    const bool may_stop = generated + 1 >= p.min_tokens && all.size() >= 2;
    if (spec.decodes && !spec.stop.empty() && may_stop &&
        all.compare(all.size() - 2, 2, spec.stop) == 0) {
      all.resize(all.size() - 2);
      e.reason = FinishReason::kStop;
      break;
    }
  }
  if (spec.decodes) e.text = all;
  return e;
}

std::vector<float> ExpectPromptLogprobs(const RequestSpec& spec) {
  std::vector<float> logprobs;
  uint64_t prefix = TokenModel::Root(*spec.sampling.seed);
  for (size_t i = 0; i + 1 < spec.prompt.size(); ++i) {
    prefix = TokenModel::Extend(prefix, spec.prompt[i]);
    logprobs.push_back(TokenModel::Logprob(prefix, spec.prompt[i + 1]));
  }
  return logprobs;
}

}  // namespace tokamak::sim
