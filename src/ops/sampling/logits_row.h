// What sampling does to one whole row of logits. Every function is one pass over the row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/sampling/mass.h"
#include "step/step_output.h"

namespace tokamak::sampling {

struct RowScan {
  float max = 0;       // -Inf when every logit is
  bool usable = true;  // no NaN, no +Inf
};
RowScan Scan(std::span<const float> row);

// The lowest id whose logit is `max`, which occurs.
TokenId FirstOf(std::span<const float> row, float max);

// out[t] = (row[t] - max) / temperature: at most 0, and -Inf stays -Inf.
void Temper(std::span<const float> row, float max, float temperature, std::span<float> out);

// out[t] = MassOf(row[t] - max), not yet rounded down to an integer.
void Weigh(std::span<const float> row, float max, std::span<float> out);

// Sum of MassOf(row[t] - max).
Mass TotalMass(std::span<const float> row, float max);

// The `count` largest logits, best first, equal ones by id: their ids. Logits of -Inf are left out,
// so fewer may come.
void TopTokens(std::span<const float> row, int32_t count, std::vector<TokenId>* ids);

// Forbids (sets to -Inf) tokens whose bit is not set; tokens beyond the last word are forbidden.
void ApplyMask(std::span<const uint32_t> allowed, std::span<float> row);

}  // namespace tokamak::sampling
