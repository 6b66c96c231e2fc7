// Undoes a permutation of rows on the way from the file. Internal to weights/.
#pragma once

#include <cstdint>
#include <memory>

#include "ops/weight_source.h"

namespace tokamak {

// A tensor whose rows are stored, in each of `num_heads` heads of d rows, as
// (0, d/2, 1, d/2 + 1, ...), seen in the order 0, 1, 2, ... A vector counts its elements as rows.
// Reads the file once per head. kDataLoss when the rows are no whole number of even-sized heads.
Result<std::shared_ptr<const WeightSource>> DeinterleaveHeads(
    std::shared_ptr<const WeightSource> source, int64_t num_heads);

}  // namespace tokamak
