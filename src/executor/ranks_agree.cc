#include "executor/ranks_agree.h"

#include <algorithm>

#include "base/error.h"

namespace tokamak {

bool SameTokens(const StepOutput& a, const StepOutput& b) {
  return a.number == b.number &&
         std::equal(a.rows.begin(), a.rows.end(), b.rows.begin(), b.rows.end(),
                    [](const RowOutput& x, const RowOutput& y) {
                      return x.slot == y.slot && x.tokens == y.tokens;
                    });
}

// Logprobs, which NaN makes different from themselves, follow from the same logits.
bool SameDraws(const StepOutput& a, const StepOutput& b) {
  return SameTokens(a, b) && std::equal(a.rows.begin(), a.rows.end(), b.rows.begin(),
                                        [](const RowOutput& x, const RowOutput& y) {
                                          return x.health == y.health && x.proposals == y.proposals;
                                        });
}

Result<ExecutorLimits> JoinLimits(const std::vector<ExecutorLimits>& ranks) {
  ExecutorLimits all = ranks[0];
  for (size_t i = 1; i < ranks.size(); ++i) {
    ExecutorLimits rank = ranks[i];
    rank.cache.block_bytes = ranks[0].cache.block_bytes;  // ranks may have other numbers of heads
    if (rank != ranks[0]) return Internal("the limits of ranks 0 and {} differ", i);
    all.cache.block_bytes += ranks[i].cache.block_bytes;
  }
  return all;
}

}  // namespace tokamak
