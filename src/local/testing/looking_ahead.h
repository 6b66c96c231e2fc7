// A constraint that looks ahead all the time, as the engine does for drafts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "engine/token_constraint.h"

namespace tokamak::testing {

// Passes everything on to `inner`. Before that it tries forced and random tokens on clones, whose
// masks must be those of `inner` once it gets the same tokens, and full where it says that none is
// needed.
class LookingAhead final : public TokenConstraint {
 public:
  explicit LookingAhead(std::unique_ptr<TokenConstraint> inner) : inner_(std::move(inner)) {}

  Status Allow(std::span<uint32_t> allowed) override {
    if (ahead_.empty()) Look(allowed.size());
    Status status = inner_->Allow(allowed);
    if (ahead_.empty()) return status;
    EXPECT_EQ(ahead_.front().mask, std::vector<uint32_t>(allowed.begin(), allowed.end()));
    EXPECT_EQ(ahead_.front().complete, inner_->complete());
    EXPECT_EQ(ahead_.front().finished, inner_->finished());
    return status;
  }
  bool Accept(TokenId token) override {
    const bool foreseen = !ahead_.empty() && ahead_.front().token == token;
    if (foreseen) {
      ahead_.pop_front();
    } else {
      ahead_.clear();
    }
    return inner_->Accept(token);
  }
  bool complete() const override { return inner_->complete(); }
  bool finished() const override { return inner_->finished(); }
  int32_t num_free() const override { return inner_->num_free(); }
  std::unique_ptr<TokenConstraint> Clone() const override { return inner_->Clone(); }
  std::vector<TokenId> ForcedTokens(int32_t most) override { return inner_->ForcedTokens(most); }

 private:
  // A state as the constraint gives it, and the token with which the look ahead left it.
  struct State {
    std::vector<uint32_t> mask;
    bool complete = false;
    bool finished = false;
    TokenId token = -1;
  };

  void Look(size_t words) {
    constexpr int32_t kMost = 4;
    const std::unique_ptr<TokenConstraint> clone = inner_->Clone();
    const std::vector<TokenId> forced = clone->ForcedTokens(kMost);
    EXPECT_LE(forced.size(), size_t{kMost});
    int32_t num_free = 0;
    for (size_t i = 0; i < kMost; ++i) {
      State state = {.mask = std::vector<uint32_t>(words),
                     .complete = clone->complete(),
                     .finished = clone->finished()};
      if (!clone->Allow(state.mask).ok()) return;
      num_free = std::max(num_free - 1, clone->num_free());
      if (num_free > 0) {
        EXPECT_TRUE(state.complete);
        EXPECT_EQ(std::set(state.mask.begin(), state.mask.end()), std::set{~uint32_t{0}});
      }
      const std::vector<TokenId> tokens = TokensOf(state.mask);
      if (i < forced.size()) {
        state.token = forced[i];  // must be allowed
      } else if (!tokens.empty()) {
        state.token = tokens[random_() % tokens.size()];
      }
      ahead_.push_back(state);
      if (state.token < 0) return;
      ASSERT_TRUE(clone->Accept(state.token)) << state.token;
    }
    ahead_.back().token = -1;
  }

  static std::vector<TokenId> TokensOf(const std::vector<uint32_t>& mask) {
    std::vector<TokenId> tokens;
    for (size_t t = 0; t < mask.size() * 32; ++t) {
      if ((mask[t / 32] >> t % 32 & 1) != 0) tokens.push_back(static_cast<TokenId>(t));
    }
    return tokens;
  }

  const std::unique_ptr<TokenConstraint> inner_;
  std::deque<State> ahead_;  // of the present state, of the next one, ...
  std::mt19937_64 random_{11};
};

}  // namespace tokamak::testing
