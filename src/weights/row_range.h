// Some rows of a stored weight.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/weight_source.h"

namespace tokamak {

// Rows [begin, end) of `source` seen as a matrix: [end - begin, cols]. The rows must exist.
std::shared_ptr<const WeightSource> RowRange(std::shared_ptr<const WeightSource> source,
                                             int64_t begin, int64_t end);

// Half-open.
struct RowRun {
  int64_t begin = 0;
  int64_t end = 0;
};
// The rows of these runs, concatenated: [Σ lengths, cols].
std::shared_ptr<const WeightSource> PickRows(std::shared_ptr<const WeightSource> source,
                                             std::vector<RowRun> runs);

// The rows of all sources in turn, `run` of each at a time, as a weight of this shape. Vectors have
// one row each and are joined. The sources must have the same type and as many elements together.
std::shared_ptr<const WeightSource> RowsInTurn(
    std::vector<std::shared_ptr<const WeightSource>> sources, int64_t run, const Shape& shape);

}  // namespace tokamak
