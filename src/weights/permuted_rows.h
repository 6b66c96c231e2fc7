// Undoes a permutation of rows while reading. Internal to weights/.
#pragma once

#include <cstdint>
#include <memory>

#include "ops/weight_source.h"

namespace tokamak {

// `source` stores the d rows of each of its `num_heads` heads as (0, d/2, 1, d/2 + 1, ...). Returns
// them in the order 0, 1, 2, ... For a vector, elements count as rows. Reads the file once per
// head. kDataLoss if the rows are not a whole number of even-sized heads.
Result<std::shared_ptr<const WeightSource>> DeinterleaveHeads(
    std::shared_ptr<const WeightSource> source, int64_t num_heads);

}  // namespace tokamak
