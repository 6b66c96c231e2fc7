// How much memory a model needs to run, and how large its KV cache can be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/model.h"
#include "ops/count/count_ops.h"
#include "runner/runner.h"

namespace tokamak {

// The memory that this model's runner may use.
struct CacheBudget {
  int64_t available_bytes = 0;  // free after loading the weights
  // The size of the device pool: num_blocks if given, else kv_cache_bytes if given, else room for
  // `default_positions` per slot and at least one sequence of max_context, within
  // `default_fraction` of the free memory.
  int32_t num_blocks = 0;
  int64_t kv_cache_bytes = 0;
  int32_t default_positions = 1024;
  double default_fraction = 0.5;
  int64_t host_cache_bytes = 0;  // for the host tier, in addition
  bool host_tier_apart = false;  // the host tier uses other memory than the device pool
};

struct MemoryProfile {
  int64_t weight_bytes = 0;
  int64_t arena_bytes = 0;    // activations and logits of the largest step
  int64_t staging_bytes = 0;  // packed batches, their device copy, block tables
  int64_t state_bytes = 0;    // one state per slot
  // Rows of images, and what the image encoder needs besides its weights.
  int64_t encoder_bytes = 0;
  int64_t block_bytes = 0;
  int32_t num_device_blocks = 0;
  int32_t num_host_blocks = 0;
  // Multiplications by weights: per position of a pass, and per position with logits.
  int64_t token_macs = 0;
  int64_t logits_macs = 0;

  RunnerMemory memory() const { return {arena_bytes, num_device_blocks, num_host_blocks}; }
};

// Runs the model on `count`, which only counts, with the largest step that `shape` allows.
// kResourceExhausted, with the numbers, if the pool cannot hold one block per cache group or the
// requested memory exceeds what is available.
// With a draft model the cache and the buffers are large enough for both.
Result<MemoryProfile> ProfileMemory(const Model& model, CountOps& count, const RunnerShape& shape,
                                    const CacheBudget& budget, const Model* draft = nullptr);

}  // namespace tokamak
