#include "engine/constrained_drafts.h"

#include <algorithm>

namespace tokamak {

TokenConstraint& ConstrainedDrafts::Ahead() {
  if (ahead_ == nullptr) ahead_ = sequence_.constraint->Clone();
  return *ahead_;
}

void ConstrainedDrafts::AddForced(int32_t most) {
  if (!ended_ && most > 0) Add(Ahead().ForcedTokens(most));
}

void ConstrainedDrafts::Add(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    ended_ = ended_ || !CanBeDraft(token);
    if (ended_) return;
    drafts_.push_back(token);
  }
}

// Leaves Ahead() behind the token if it can be one.
bool ConstrainedDrafts::CanBeDraft(TokenId token) {
  const RequestState& request = *sequence_.request;
  const std::vector<TokenId>& ends = request.sampling.stop_token_ids;
  const std::vector<TokenId>& eos = request.eos_ids;
  return !std::binary_search(ends.begin(), ends.end(), token) &&
         std::find(eos.begin(), eos.end(), token) == eos.end() && Ahead().Accept(token) &&
         !Ahead().finished();
}

}  // namespace tokamak
