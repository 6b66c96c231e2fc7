#include "ops/sampling/slot_sampling.h"

#include <algorithm>
#include <limits>

#include "ops/sampling/logits_row.h"
#include "ops/sampling/token_bits.h"

namespace tokamak::sampling {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Makes overflows finite; -Inf stays -Inf.
float Clamp(float before, float after) {
  constexpr float kMax = std::numeric_limits<float>::max();
  return before == -kInf ? before : std::clamp(after, -kMax, kMax);
}

}  // namespace

void SlotSampling::Reset(const SamplingParams& params, int32_t choice,
                         std::span<const TokenId> tokens, int32_t num_prompt) {
  params_ = params;
  choice_ = choice;
  num_prompt_ = num_prompt;
  penalizes_ = Penalizes(params);
  allowed_ = TokenBits(params.allowed_token_ids);
  history_.clear();
  seen_.clear();
  index_.clear();
  dry_.Reset(params);
  keeps_history_ =
      (penalizes_ && params.repeat_last_n > 0) || dry_.on() || HistoryForBadWords(params) > 0;
  if (keeps_history_) history_.assign(tokens.begin(), tokens.end());
  if (!penalizes_) return;
  size_t first = 0;
  if (params.repeat_last_n > 0) {
    const auto window = static_cast<size_t>(params.repeat_last_n);
    first = tokens.size() - std::min(tokens.size(), window);
  }
  for (size_t i = first; i < tokens.size(); ++i) {
    Count(tokens[i], i >= static_cast<size_t>(num_prompt), 1);
  }
}

void SlotSampling::Count(TokenId token, bool in_output, int32_t change) {
  const auto [it, added] = index_.try_emplace(token, seen_.size());
  if (added) seen_.push_back({.token = token});
  Seen& seen = seen_[it->second];
  seen.count += change;
  if (in_output) seen.output_count += change;
}

void SlotSampling::CountPushedOut(int32_t change) {
  const auto window = static_cast<size_t>(params_.repeat_last_n);
  if (params_.repeat_last_n < 0 || history_.size() <= window) return;
  const size_t index = history_.size() - window - 1;
  Count(history_[index], index >= static_cast<size_t>(num_prompt_), change);
}

void SlotSampling::Append(TokenId token) {
  if (keeps_history_) history_.push_back(token);
  if (!penalizes_) return;
  Count(token, /*in_output=*/true, 1);
  CountPushedOut(-1);
}

void SlotSampling::TakeBack(TokenId last) {
  if (penalizes_) {
    Count(last, /*in_output=*/true, -1);
    CountPushedOut(1);
  }
  if (keeps_history_) history_.pop_back();
}

bool SlotSampling::Completes(std::span<const TokenId> bad_word) const {
  const std::span<const TokenId> before = bad_word.first(bad_word.size() - 1);
  if (before.empty()) return true;
  const auto output = std::span(history_).subspan(static_cast<size_t>(num_prompt_));
  return output.size() >= before.size() &&
         std::equal(before.begin(), before.end(), output.end() - std::ssize(before));
}

void SlotSampling::Edit(int32_t position, std::span<float> row,
                        std::vector<std::pair<TokenId, float>>* raw) const {
  const bool forbid_stop = ForbidsStop(position);
  std::vector<DryRepeat> repeats;
  if (dry_.on()) dry_.FindRepeats(history_, &repeats);
  if (raw != nullptr) {
    raw->clear();
    for (const auto& [token, bias] : params_.logit_bias) raw->emplace_back(token, row[token]);
    for (const Seen& seen : seen_) {
      if (seen.count > 0) raw->emplace_back(seen.token, row[seen.token]);
    }
    for (const DryRepeat& repeat : repeats) raw->emplace_back(repeat.token, row[repeat.token]);
    if (forbid_stop) {
      for (const TokenId token : params_.stop_token_ids) raw->emplace_back(token, row[token]);
    }
  }
  for (const auto& [token, bias] : params_.logit_bias) {
    row[token] = Clamp(row[token], row[token] + bias);
  }
  for (const Seen& seen : seen_) {
    if (seen.count == 0) continue;
    const float before = row[seen.token];
    float x =
        before > 0 ? before / params_.repetition_penalty : before * params_.repetition_penalty;
    x = Clamp(before, x);
    if (seen.output_count > 0) {
      const float count = static_cast<float>(seen.output_count);
      x = Clamp(before, (x - params_.presence_penalty) - params_.frequency_penalty * count);
    }
    row[seen.token] = x;
  }
  for (const DryRepeat& repeat : repeats) {
    float& x = row[repeat.token];
    x = Clamp(x, x - dry_.Penalty(repeat.length));
  }
  if (forbid_stop) {
    for (const TokenId token : params_.stop_token_ids) row[token] = -kInf;
  }
  if (!allowed_.empty()) ApplyMask(allowed_, row);
  for (const std::vector<TokenId>& word : params_.bad_words_ids) {
    if (Completes(word)) row[word.back()] = -kInf;
  }
}

}  // namespace tokamak::sampling
