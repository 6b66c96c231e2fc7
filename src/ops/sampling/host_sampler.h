// The sampler for backends whose logits are in host memory.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "ops/sampler.h"

namespace tokamak {

// Parallel over rows. `pool` must outlive the sampler. Sample and Score use it and are done when
// they return.
std::unique_ptr<Sampler> MakeHostSampler(const SamplerShape& shape, ThreadPool* pool);

}  // namespace tokamak
