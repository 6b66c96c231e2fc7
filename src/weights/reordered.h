// Stored weights whose elements are others, or lie in another order, than a layer wants them.
#pragma once

#include <cstdint>
#include <memory>

#include "ops/weight_source.h"

namespace tokamak {

// Rows first, first + step, ... of `source`.
std::shared_ptr<const WeightSource> EveryNthRow(std::shared_ptr<const WeightSource> source,
                                                int64_t first, int64_t step);

// Rows [begin, end) of `source`, transposed: [cols, end - begin]. They are read as a whole, by the
// first ReadRows, and kept as long as the result. kUnimplemented for block types.
Result<std::shared_ptr<const WeightSource>> Transposed(std::shared_ptr<const WeightSource> source,
                                                       int64_t begin, int64_t end);

// `source` itself, or its values as f32 where its type packs several elements into a block.
std::shared_ptr<const WeightSource> WithoutBlocks(std::shared_ptr<const WeightSource> source);

// An F32 vector, less 1. kUnimplemented for other types and shapes.
Result<std::shared_ptr<const WeightSource>> MinusOne(std::shared_ptr<const WeightSource> source);

}  // namespace tokamak
