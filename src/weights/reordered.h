// Views of stored weights with other values or another order than the file's.
#pragma once

#include <cstdint>
#include <memory>

#include "ops/weight_source.h"

namespace tokamak {

// Rows first, first + step, ... of `source`.
std::shared_ptr<const WeightSource> EveryNthRow(std::shared_ptr<const WeightSource> source,
                                                int64_t first, int64_t step);

// Rows [begin, end) of `source`, transposed: [cols, end - begin]. The first ReadRows reads them all
// and keeps them as long as the result lives. kUnimplemented for block types.
Result<std::shared_ptr<const WeightSource>> Transposed(std::shared_ptr<const WeightSource> source,
                                                       int64_t begin, int64_t end);

// The same elements as a matrix, [dims[0], all others]. kUnimplemented for block types.
Result<std::shared_ptr<const WeightSource>> AsMatrix(std::shared_ptr<const WeightSource> source);

// A convolution's weight, [outputs, channels, ...] or [outputs, channels · others], as such a
// matrix, but with the channels last in each row: for inputs that are rows of channels side by
// side. kUnimplemented for block types.
Result<std::shared_ptr<const WeightSource>> AsChannelsLastMatrix(
    std::shared_ptr<const WeightSource> source, int64_t channels);

// `source` itself; if its type is a block type, its values as f32.
std::shared_ptr<const WeightSource> WithoutBlocks(std::shared_ptr<const WeightSource> source);

// An F32 vector minus 1. kUnimplemented for other types and shapes.
Result<std::shared_ptr<const WeightSource>> MinusOne(std::shared_ptr<const WeightSource> source);

}  // namespace tokamak
