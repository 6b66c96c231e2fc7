// Some rows of a stored weight.
#pragma once

#include <cstdint>
#include <memory>

#include "ops/weight_source.h"

namespace tokamak {

// Rows [begin, end) of `source` seen as a matrix, which must have them: [end - begin, cols].
std::shared_ptr<const WeightSource> RowRange(std::shared_ptr<const WeightSource> source,
                                             int64_t begin, int64_t end);

}  // namespace tokamak
