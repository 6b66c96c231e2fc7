#include "sim/model.h"

#include <algorithm>
#include <utility>

namespace tokamak::sim {
namespace {

class RulesConstraint final : public TokenConstraint {
 public:
  explicit RulesConstraint(TokenRules rules) : state_(rules.Start()) {}

  Status Allow(std::span<uint32_t> allowed) override {
    // Covers more ids than the vocabulary has: the executor must not draw those.
    for (size_t t = 0; t < allowed.size() * 32; ++t) {
      if (TokenRules::Allows(state_, static_cast<TokenId>(t))) {
        allowed[t / 32] |= uint32_t{1} << t % 32;
      }
    }
    return Status();
  }
  bool Accept(TokenId token) override {
    if (!TokenRules::Allows(state_, token)) return false;
    state_ = TokenRules::Next(state_, token);
    return true;
  }
  bool complete() const override { return TokenRules::Complete(state_); }
  bool finished() const override { return TokenRules::Finished(state_); }
  std::unique_ptr<TokenConstraint> Clone() const override {
    return std::make_unique<RulesConstraint>(*this);
  }
  // Guesses among the tokens that are usual, most of which are allowed.
  std::vector<TokenId> ForcedTokens(int32_t most) override {
    std::vector<TokenId> tokens;
    uint64_t state = state_;
    while (static_cast<int32_t>(tokens.size()) < most && Mix(state, 0xf0) % 4 > 0) {
      const uint64_t random = Mix(state, 0xf1);
      auto token = static_cast<TokenId>(random % kGuesses);
      for (TokenId i = 1; i < kGuesses && random >> 32 & 7; ++i) {
        if (TokenRules::Allows(state, token)) break;
        token = (token + 1) % kGuesses;
      }
      tokens.push_back(token);
      state = TokenRules::Next(state, token);
    }
    return tokens;
  }

 private:
  static constexpr TokenId kGuesses = 4;  // every vocabulary has as many tokens

  uint64_t state_;
};

TokenRules RulesOf(const StructuredOutput& output) { return {std::stoull(output.text)}; }

}  // namespace

std::vector<std::unique_ptr<TokenConstraint>> MakeConstraints(const SamplingParams& sampling) {
  std::vector<std::unique_ptr<TokenConstraint>> constraints;
  for (int32_t i = 0; sampling.structured_output && i < sampling.n; ++i) {
    constraints.push_back(std::make_unique<RulesConstraint>(RulesOf(*sampling.structured_output)));
  }
  return constraints;
}

std::optional<TokenId> TokenModel::Draw(uint64_t prefix, uint64_t seed, int32_t choice,
                                        const std::function<bool(TokenId)>& allowed) const {
  TokenId token = 0;
  for (int32_t attempt = 0; attempt < 8; ++attempt) {
    const uint64_t key = Mix(seed, static_cast<uint64_t>(choice) * 1000 + attempt);
    const uint64_t random = Mix(prefix, key);
    const bool is_usual = usual > 0 && random >> 32 & 7;
    token = static_cast<TokenId>(random % static_cast<uint64_t>(is_usual ? usual : vocab));
    if (allowed(token)) return token;
  }
  for (int32_t i = 0; i < vocab; ++i) {
    token = (token + 1) % vocab;
    if (allowed(token)) return token;
  }
  return std::nullopt;
}

bool LetterDecoder::Append(TokenId token, bool may_stop, OutputChunk* chunk) {
  held_ += Letter(token);
  if (!stop_.empty() && may_stop && held_ == stop_) return true;
  const size_t keep = stop_.empty() || !may_stop ? 0 : 1;
  while (held_.size() > keep) {
    chunk->text += held_.front();
    held_.erase(0, 1);
  }
  return false;
}

void LetterDecoder::Flush(OutputChunk* chunk) {
  chunk->text += held_;
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
  std::optional<uint64_t> state;  // of the structured output
  if (p.structured_output) state = RulesOf(*p.structured_output).Start();
  Expectation e;
  std::string all;
  bool could_stop = false;  // stop strings may begin with the last token
  while (static_cast<int32_t>(e.tokens.size()) < most) {
    const int32_t generated = static_cast<int32_t>(e.tokens.size());
    const auto token = model.Draw(prefix, seed, choice, [&](TokenId t) {
      if (is_end(t)) return generated >= p.min_tokens && (!state || TokenRules::Complete(*state));
      if (!state) return true;
      const bool eos = std::find(spec.eos_ids.begin(), spec.eos_ids.end(), t) != spec.eos_ids.end();
      return !eos && TokenRules::Allows(*state, t);
    });
    e.health = model.Health(prefix, seed);
    if (!token) e.health = RowHealth::kNoCandidate;
    if (e.health != RowHealth::kOk) {
      e.reason = FinishReason::kError;
      break;
    }
    if (is_end(*token)) {
      e.reason = FinishReason::kStop;
      break;
    }
    e.tokens.push_back(*token);
    e.logprobs.push_back(TokenModel::Logprob(prefix, *token));
    prefix = TokenModel::Extend(prefix, *token);
    if (state) state = TokenRules::Next(*state, *token);
    all += Letter(*token);
    const bool finished = state && TokenRules::Finished(*state);
    const bool may_stop =
        generated + 1 >= p.min_tokens && !finished && (!state || TokenRules::Complete(*state));
    if (spec.decodes && !spec.stop.empty() && std::exchange(could_stop, may_stop) && may_stop &&
        all.compare(all.size() - 2, 2, spec.stop) == 0) {
      all.resize(all.size() - 2);
      e.reason = FinishReason::kStop;
      break;
    }
    if (finished) {
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
