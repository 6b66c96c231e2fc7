// What a model needs in memory to run, and how large its KV cache can be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/model.h"
#include "ops/count/count_ops.h"
#include "runner/runner.h"

namespace tokamak {

// What may be used. Byte counts are for this model's runner alone.
struct CacheBudget {
  int64_t available_bytes = 0;  // free now, with the weights loaded
  // The size of the device pool, the first that is given: blocks, bytes, or a default: room for
  // `default_positions` per slot and for one sequence of max_context, within `default_fraction` of
  // what is free.
  int32_t num_blocks = 0;
  int64_t kv_cache_bytes = 0;
  int32_t default_positions = 1024;
  double default_fraction = 0.5;
  int64_t host_cache_bytes = 0;  // of the host tier, on top
  bool host_tier_apart = false;  // it is in other memory than the pool
};

struct MemoryProfile {
  int64_t weight_bytes = 0;
  int64_t arena_bytes = 0;    // activations and logits of the largest step
  int64_t staging_bytes = 0;  // packed batches, their device copy, block tables
  int64_t block_bytes = 0;
  int32_t num_device_blocks = 0;
  int32_t num_host_blocks = 0;
  // Multiplications by weights: in one position of a pass, and in the logits of one.
  int64_t token_macs = 0;
  int64_t logits_macs = 0;

  RunnerMemory memory() const { return {arena_bytes, num_device_blocks, num_host_blocks}; }
};

// Runs the model once on `count`, which only counts, with the largest step that the shape allows.
// kResourceExhausted, with the numbers, when the pool would not hold one block per cache group or
// what was asked for is more than is available.
Result<MemoryProfile> ProfileMemory(const Model& model, CountOps& count, const RunnerShape& shape,
                                    const CacheBudget& budget);

}  // namespace tokamak
