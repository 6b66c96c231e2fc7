// How a model's layers are divided among the stages of a pipeline (arXiv:1811.06965).
#pragma once

#include <cstdint>
#include <vector>

#include "ops/collectives.h"
#include "tokamak/status.h"

namespace tokamak {

struct LayerCosts {
  std::vector<int64_t> layers;  // each positive
  int64_t output = 0;           // of the last stage, in addition
  int32_t least_first = 1;      // layers that the first stage must have
};

// The layers of each stage, at least one. The most expensive stage costs as little as it can, and
// then the squares of all are least. kInvalidArgument, with the most stages that would work, if
// there are too few layers.
Result<std::vector<IndexRange>> DivideLayers(const LayerCosts& costs, int32_t stages);

}  // namespace tokamak
