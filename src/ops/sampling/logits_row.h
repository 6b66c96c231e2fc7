// Functions of sampling on a whole row of logits, one pass each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/sampling/mass.h"
#include "step/step_output.h"

namespace tokamak::sampling {

struct RowScan {
  float max = 0;       // -Inf if every logit is
  bool usable = true;  // no NaN and no +Inf
};
RowScan Scan(std::span<const float> row);

// Returns the lowest id whose logit is `max`. Requires that there is one.
TokenId FirstOf(std::span<const float> row, float max);

// Sets tokens whose logit is more than n standard deviations of the finite logits below `max`, the
// largest one, to -Inf.
void KeepSigmas(std::span<float> row, float max, float n);

// Returns the dynamic temperature for this row (row_sums.h).
float DynamicTemperatureOf(std::span<const float> row, float max, const SamplingParams& params);

// out[t] = (row[t] - max) / temperature: at most 0; -Inf stays -Inf.
void Temper(std::span<const float> row, float max, float temperature, std::span<float> out);

// out[t] = MassOf(row[t] - max), before rounding to an integer.
void Weigh(std::span<const float> row, float max, std::span<float> out);

// Returns the sum of MassOf(row[t] - max).
Mass TotalMass(std::span<const float> row, float max);

// Sets `ids` to those of the `count` largest logits, best first, equal ones by id. Leaves out -Inf.
void TopTokens(std::span<const float> row, int32_t count, std::vector<TokenId>* ids);

// Sets tokens without a set bit to -Inf, also those beyond the last word.
void ApplyMask(std::span<const uint32_t> allowed, std::span<float> row);

}  // namespace tokamak::sampling
