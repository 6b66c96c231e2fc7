// The attention shapes that a model's cache groups need in a runner.
#pragma once

#include <vector>

#include "nn/cache_layout.h"
#include "ops/attention.h"
#include "runner/runner.h"

namespace tokamak {

// One per cache group. kUnimplemented if the layers of a group differ in shape.
Result<std::vector<AttentionShape>> AttentionShapes(const nn::CacheLayout& cache,
                                                    const RunnerShape& shape);

}  // namespace tokamak
