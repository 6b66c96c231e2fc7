// Drafts of a sequence with a constraint, whose draws wait for masks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/sequence.h"
#include "engine/token_constraint.h"
#include "step/step_input.h"

namespace tokamak {

// Looks ahead in the constraint of a sequence, so that no draft is computed that cannot be drawn or
// has nothing behind it: one that the constraint forbids, or that ends the answer.
class ConstrainedDrafts {
 public:
  // `sequence` has a constraint, and no step in flight draws for it.
  explicit ConstrainedDrafts(const Sequence& sequence) : sequence_(sequence) {}

  // Adds up to `most` of the text that must come next.
  void AddForced(int32_t most);
  // Adds `tokens` up to the first one that can be no draft.
  void Add(std::span<const TokenId> tokens);

  int32_t size() const { return static_cast<int32_t>(drafts_.size()); }
  std::vector<TokenId> Take() { return std::move(drafts_); }

 private:
  TokenConstraint& Ahead();
  bool CanBeDraft(TokenId token);

  const Sequence& sequence_;
  std::unique_ptr<TokenConstraint> ahead_;  // after the drafts; null until it is needed
  bool ended_ = false;                      // no draft may follow
  std::vector<TokenId> drafts_;
};

}  // namespace tokamak
