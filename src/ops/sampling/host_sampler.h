// The sampler of backends whose logits lie in host memory.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "ops/sampler.h"

namespace tokamak {

// Parallel over rows. `pool` outlives the sampler; it is used inside Sample and Score only, which
// have happened when they return.
std::unique_ptr<Sampler> MakeHostSampler(const SamplerShape& shape, ThreadPool* pool);

}  // namespace tokamak
