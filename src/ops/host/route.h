// The choice of experts (ops/moe.h) in main memory, in double, so that it is the same on every
// backend.
#pragma once

#include <cstdint>

#include "ops/moe.h"

namespace tokamak {

inline constexpr int32_t kMaxExperts = 1024;

// Chooses the experts of one token, best first, and their weights. `bias` may be null.
void ChooseExperts(const RouterConfig& router, const float* logits, const float* bias,
                   int32_t* experts, float* weights);

// Fills op.tokens, op.rows and op.offsets from op.experts.
void GroupByExpert(const RouteTokens& op);

}  // namespace tokamak
