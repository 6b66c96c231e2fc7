#include "sim/model.h"

#include <algorithm>
#include <cmath>
#include <set>
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

// All tokens may come, but behind so many only `mark`.
class BudgetConstraint final : public TokenConstraint {
 public:
  BudgetConstraint(int32_t budget, TokenId mark) : left_(budget), mark_(mark) {}

  Status Allow(std::span<uint32_t> allowed) override {
    if (left_ != 0) std::fill(allowed.begin(), allowed.end(), ~uint32_t{0});
    allowed[0] |= uint32_t{1} << mark_;
    return Status();
  }
  bool Accept(TokenId token) override { return left_-- != 0 || token == mark_; }
  bool complete() const override { return left_ != 0; }
  bool finished() const override { return false; }
  std::unique_ptr<TokenConstraint> Clone() const override {
    return std::make_unique<BudgetConstraint>(*this);
  }
  int32_t num_free() const override { return left_ < 0 ? INT32_MAX : left_; }
  std::vector<TokenId> ForcedTokens(int32_t most) override {
    return left_ == 0 && most > 0 ? std::vector<TokenId>{mark_} : std::vector<TokenId>();
  }

 private:
  int32_t left_;  // below 0 behind the mark
  const TokenId mark_;
};

}  // namespace

std::vector<std::unique_ptr<TokenConstraint>> MakeConstraints(const SamplingParams& sampling) {
  std::vector<std::unique_ptr<TokenConstraint>> constraints;
  for (int32_t i = 0; sampling.structured_output && i < sampling.n; ++i) {
    constraints.push_back(std::make_unique<RulesConstraint>(RulesOf(*sampling.structured_output)));
  }
  for (int32_t i = 0; sampling.thinking_token_budget && i < sampling.n; ++i) {
    constraints.push_back(
        std::make_unique<BudgetConstraint>(*sampling.thinking_token_budget, BudgetMark(sampling)));
  }
  return constraints;
}

EncodeImage ImageOf(ImageId id) {
  EncodeImage image{.id = id, .num_rows = static_cast<int32_t>(Mix(id, 0x20f5) % 7) + 1};
  image.shape = {image.num_rows, 2};
  for (int32_t i = 0; i < 2 * image.num_rows; ++i) {
    image.values.push_back(static_cast<float>(Mix(id, static_cast<uint64_t>(i)) % 1000));
  }
  return image;
}

std::vector<uint64_t> TokenModel::Prefixes(uint64_t seed, std::span<const TokenId> tokens,
                                           std::span<const ImageSpan> images) {
  std::vector<uint64_t> prefixes;
  uint64_t prefix = Root(seed);
  auto span = images.begin();
  for (int32_t i = 0; i < std::ssize(tokens); ++i) {
    while (span != images.end() && span->end() <= i) ++span;
    const bool shown = span != images.end() && span->position <= i;
    prefix = shown ? ExtendByRow(prefix, span->image, span->first_row + i - span->position)
                   : Extend(prefix, tokens[static_cast<size_t>(i)]);
    prefixes.push_back(prefix);
  }
  return prefixes;
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

namespace {

// The answer to a request as it grows.
class Growing {
 public:
  Growing(const RequestSpec& spec, int32_t max_context) : spec_(&spec) {
    const SamplingParams& p = spec.sampling;
    prefix_ = TokenModel::Prefixes(*p.seed, spec.prompt, spec.images).back();
    ends_ = p.stop_token_ids;
    if (!p.ignore_eos) ends_.insert(ends_.end(), spec.eos_ids.begin(), spec.eos_ids.end());
    const int32_t room =
        std::min(max_context, spec.max_length) - static_cast<int32_t>(spec.prompt.size());
    most_ = std::min(room, p.max_tokens.value_or(room));
    if (p.structured_output) state_ = RulesOf(*p.structured_output).Start();
  }

  uint64_t prefix() const { return prefix_; }
  int32_t most() const { return most_; }
  size_t num_ends() const { return std::set<TokenId>(ends_.begin(), ends_.end()).size(); }
  bool full() const { return size() == most_; }

  bool Allows(TokenId t) const {
    if (spec_->sampling.thinking_token_budget == size()) {
      return t == BudgetMark(spec_->sampling) && !IsEnd(t);
    }
    if (IsEnd(t)) {
      return size() >= spec_->sampling.min_tokens && (!state_ || TokenRules::Complete(*state_));
    }
    if (!state_) return true;
    const auto& eos = spec_->eos_ids;
    return std::find(eos.begin(), eos.end(), t) == eos.end() && TokenRules::Allows(*state_, t);
  }

  // Adds an allowed token. Returns whether the answer ends with it, for another reason than its
  // length.
  bool Add(TokenId token) {
    if (IsEnd(token)) {
      e_.reason = FinishReason::kStop;
      return true;
    }
    e_.tokens.push_back(token);
    e_.logprobs.push_back(TokenModel::Logprob(prefix_, token));
    prefix_ = TokenModel::Extend(prefix_, token);
    if (state_) state_ = TokenRules::Next(*state_, token);
    text_ += Letter(token);
    const bool finished = state_ && TokenRules::Finished(*state_);
    const bool may_stop = size() >= spec_->sampling.min_tokens && !finished &&
                          (!state_ || TokenRules::Complete(*state_)) &&
                          spec_->sampling.thinking_token_budget != size();
    bool stopped = finished;
    if (spec_->decodes && !spec_->stop.empty() && std::exchange(could_stop_, may_stop) &&
        may_stop && text_.compare(text_.size() - 2, 2, spec_->stop) == 0) {
      text_.resize(text_.size() - 2);
      stopped = true;
    }
    if (stopped) e_.reason = FinishReason::kStop;
    return stopped;
  }

  Expectation Result() const {
    Expectation e = e_;
    if (spec_->decodes) e.text = text_;
    return e;
  }
  Expectation Unhealthy(RowHealth health) const {
    Expectation e = Result();
    e.health = health;
    e.reason = FinishReason::kError;
    return e;
  }

 private:
  int32_t size() const { return static_cast<int32_t>(e_.tokens.size()); }
  bool IsEnd(TokenId t) const { return std::find(ends_.begin(), ends_.end(), t) != ends_.end(); }

  const RequestSpec* spec_;
  std::vector<TokenId> ends_;
  int32_t most_ = 0;
  uint64_t prefix_ = 0;
  std::optional<uint64_t> state_;  // of the structured output
  std::string text_;
  bool could_stop_ = false;  // stop strings may begin with the last token
  Expectation e_;
};

}  // namespace

Expectation Expect(const TokenModel& model, const RequestSpec& spec, int32_t choice,
                   int32_t max_context) {
  const uint64_t seed = *spec.sampling.seed;
  Growing answer(spec, max_context);
  while (!answer.full()) {
    const auto token =
        model.Draw(answer.prefix(), seed, choice, [&](TokenId t) { return answer.Allows(t); });
    RowHealth health = model.Health(answer.prefix(), seed);
    if (!token) health = RowHealth::kNoCandidate;
    if (health != RowHealth::kOk) return answer.Unhealthy(health);
    if (answer.Add(*token)) break;
  }
  return answer.Result();
}

std::vector<Expectation> ExpectBeams(const TokenModel& model, const RequestSpec& spec,
                                     int32_t max_context) {
  struct Branch {
    Growing answer;
    float score = 0;
  };
  const SamplingParams& p = spec.sampling;
  const auto width = static_cast<size_t>(p.beam_search->width);
  const auto early = p.beam_search->early_stopping;
  const double penalty = p.beam_search->length_penalty;
  const auto n = static_cast<size_t>(p.n);
  const auto normalized = [&](float score, int32_t length) {
    return score / static_cast<float>(std::pow(double{1} * length, penalty));
  };
  std::vector<Branch> live = {{Growing(spec, max_context)}};
  std::vector<Branch> ended;
  const size_t considered = std::max<size_t>(2, 1 + live[0].answer.num_ends()) * width;
  const int32_t most = live[0].answer.most();
  struct Next {
    float score;
    size_t branch;
    TokenId token;
  };
  for (int32_t length = 1; !live.empty(); ++length) {
    std::vector<Next> next;
    for (size_t b = 0; b < live.size(); ++b) {
      const uint64_t prefix = live[b].answer.prefix();
      const RowHealth health = model.Health(prefix, *p.seed);
      if (health == RowHealth::kNotFinite) {
        return std::vector<Expectation>(n, Growing(spec, max_context).Unhealthy(health));
      }
      for (TokenId t = 0; health == RowHealth::kOk && t < model.vocab; ++t) {
        if (!live[b].answer.Allows(t)) continue;
        next.push_back({live[b].score + TokenModel::Logprob(prefix, t), b, t});
      }
    }
    std::stable_sort(next.begin(), next.end(),
                     [](const Next& x, const Next& y) { return x.score > y.score; });
    std::vector<Branch> before = std::exchange(live, {});
    for (size_t i = 0; i < next.size() && i < considered; ++i) {
      Branch longer = {before[next[i].branch].answer, next[i].score};
      const bool ends = longer.answer.Add(next[i].token) || length == most;
      if (!ends && live.size() < width) live.push_back(longer);
      if (!ends || i >= width) continue;
      longer.score = normalized(longer.score, length);
      ended.push_back(longer);
    }
    std::stable_sort(ended.begin(), ended.end(),
                     [](const Branch& a, const Branch& b) { return a.score > b.score; });
    ended.resize(std::min(ended.size(), width), {Growing(spec, max_context)});
    if (ended.size() < width || live.empty()) continue;
    const bool longest = early == EarlyStopping::kNever && penalty > 0;
    const float hope = normalized(live[0].score, longest ? most : length);
    if (early == EarlyStopping::kYes || hope <= ended.back().score) break;
  }
  if (ended.empty()) {
    return std::vector<Expectation>(n,
                                    Growing(spec, max_context).Unhealthy(RowHealth::kNoCandidate));
  }
  std::vector<Expectation> answers;
  for (size_t i = 0; i < n && i < ended.size(); ++i) {
    answers.push_back(ended[i].answer.Result());
    answers.back().beam_score = ended[i].score;
  }
  Expectation none;  // masks left fewer
  none.reason = FinishReason::kStop;
  answers.resize(n, none);
  return answers;
}

std::vector<float> ExpectPromptLogprobs(const RequestSpec& spec) {
  std::vector<float> logprobs;
  const std::vector<uint64_t> prefixes =
      TokenModel::Prefixes(*spec.sampling.seed, spec.prompt, spec.images);
  for (size_t i = 0; i + 1 < spec.prompt.size(); ++i) {
    logprobs.push_back(TokenModel::Logprob(prefixes[i], spec.prompt[i + 1]));
  }
  return logprobs;
}

}  // namespace tokamak::sim
