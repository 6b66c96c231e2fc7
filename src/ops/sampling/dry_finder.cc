#include "ops/sampling/dry_finder.h"

#include <algorithm>

#include "ops/sampling/token_bits.h"

namespace tokamak::sampling {
namespace {

// lengths[k] = DryMatch(k, ...) for 0 < k < window, by the Z-algorithm (Gusfield, Algorithms on
// Strings, Trees and Sequences, 1.4): known matches that overlap a place tell its match, so that
// each token is compared once.
template <typename Token>
std::vector<int32_t> DryMatches(int32_t window, int32_t limit, Token token) {
  std::vector<int32_t> lengths(static_cast<size_t>(window), 0);
  // The match that reaches furthest back: of places [begin, end).
  int32_t begin = 0, end = 0;
  for (int32_t k = 1; k < window; ++k) {
    int32_t& length = lengths[static_cast<size_t>(k)];
    if (k < end) {
      length = lengths[static_cast<size_t>(k - begin)];
      if (length < end - k) continue;
      length = end - k;
    }
    // Compares beyond the limit too, because later places build on it.
    int32_t full = length;
    while (full + k < window && token(full) == token(full + k)) ++full;
    length = std::min(full, limit);
    if (full > 0) {
      begin = k;
      end = k + full;
    }
  }
  return lengths;
}

}  // namespace

void FlattenDrySequences(const SamplingParams& params, std::vector<int32_t>* tokens,
                         std::vector<int32_t>* ends) {
  std::vector<std::vector<int32_t>> sequences = params.dry_breaker_sequences;
  std::sort(sequences.begin(), sequences.end());
  tokens->clear();
  ends->clear();
  for (const std::vector<int32_t>& sequence : sequences) {
    tokens->insert(tokens->end(), sequence.begin(), sequence.end());
    ends->push_back(static_cast<int32_t>(tokens->size()));
  }
}

void DryFinder::Reset(const SamplingParams& params) {
  window_ = DryWindow(params);
  single_.clear();
  tokens_.clear();
  ends_.clear();
  if (!on()) return;
  multiplier_ = params.dry_multiplier;
  base_ = params.dry_base;
  allowed_length_ = params.dry_allowed_length;
  single_ = TokenBits(params.dry_breaker_tokens);
  FlattenDrySequences(params, &tokens_, &ends_);
}

void DryFinder::FindRepeats(std::span<const TokenId> history,
                            std::vector<DryRepeat>* repeats) const {
  repeats->clear();
  const auto window = static_cast<int32_t>(std::min(history.size(), static_cast<size_t>(window_)));
  const auto token = [&history](int32_t i) { return history[history.size() - 1 - i]; };
  const DryBreakers breakers = {.single = single_.data(),
                                .num_words = static_cast<int32_t>(single_.size()),
                                .tokens = tokens_.data(),
                                .ends = ends_.data(),
                                .num_sequences = static_cast<int32_t>(ends_.size())};
  int32_t limit = LongestDryMatch(base_, allowed_length_);
  for (int32_t i = 0; i < window; ++i) {
    const int32_t following = BreakerAt(breakers, i, token);
    if (following < 0) continue;
    limit = std::min(limit, i - following);
    break;
  }
  if (limit < allowed_length_) return;
  const std::vector<int32_t> lengths = DryMatches(window, limit, token);
  for (int32_t k = 1; k < window; ++k) {
    const int32_t length = lengths[static_cast<size_t>(k)];
    const TokenId next = token(k - 1);
    if (length >= allowed_length_ && !breakers.IsSingle(next)) repeats->push_back({next, length});
  }
  std::sort(repeats->begin(), repeats->end(), [](const DryRepeat& a, const DryRepeat& b) {
    return a.token < b.token || (a.token == b.token && a.length > b.length);
  });
  const auto same = [](const DryRepeat& a, const DryRepeat& b) { return a.token == b.token; };
  repeats->erase(std::unique(repeats->begin(), repeats->end(), same), repeats->end());
}

}  // namespace tokamak::sampling
