#include "ops/sampling/slot_sampling.h"

#include <algorithm>
#include <limits>

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
  penalizes_ = params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
               params.frequency_penalty != 0.0f;
  seen_.clear();
  index_.clear();
  if (!penalizes_) return;
  for (size_t i = 0; i < tokens.size(); ++i) {
    Count(tokens[i], i < static_cast<size_t>(num_prompt) ? 0 : 1);
  }
}

void SlotSampling::Count(TokenId token, int32_t output_count) {
  const auto [it, added] = index_.try_emplace(token, seen_.size());
  if (added) seen_.push_back({token, 0});
  seen_[it->second].output_count += output_count;
}

void SlotSampling::Append(TokenId token) {
  if (penalizes_) Count(token, 1);
}

void SlotSampling::Forget(std::span<const TokenId> tokens, size_t num_seen) {
  for (const TokenId token : tokens) --seen_[index_.at(token)].output_count;
  for (; seen_.size() > num_seen; seen_.pop_back()) index_.erase(seen_.back().token);
}

void SlotSampling::Edit(int32_t position, std::span<float> row,
                        std::vector<std::pair<TokenId, float>>* raw) const {
  const bool forbid_stop = ForbidsStop(position);
  if (raw != nullptr) {
    raw->clear();
    for (const auto& [token, bias] : params_.logit_bias) raw->emplace_back(token, row[token]);
    for (const Seen& seen : seen_) raw->emplace_back(seen.token, row[seen.token]);
    if (forbid_stop) {
      for (const TokenId token : params_.stop_token_ids) raw->emplace_back(token, row[token]);
    }
  }
  for (const auto& [token, bias] : params_.logit_bias) {
    row[token] = Clamp(row[token], row[token] + bias);
  }
  for (const Seen& seen : seen_) {
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
  if (forbid_stop) {
    for (const TokenId token : params_.stop_token_ids) row[token] = -kInf;
  }
}

}  // namespace tokamak::sampling
