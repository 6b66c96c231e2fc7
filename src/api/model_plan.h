// What a model will need and how fast it can be at most, from its configuration alone: the model
// runs on the backend that only counts.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "api/hardware.h"
#include "tokamak/engine.h"

namespace tokamak {

// How fast a pass can be: the time to read what it must read, or to multiply what it must multiply.
struct Roofline {
  double memory_seconds = 0;  // weights and KV cache
  double compute_seconds = 0;

  double seconds() const {
    return memory_seconds > compute_seconds ? memory_seconds : compute_seconds;
  }
  bool memory_bound() const { return memory_seconds > compute_seconds; }
};

struct ModelPlan {
  std::string model;  // the path
  Task task = Task::kGenerate;
  std::string architecture;
  std::string refusal;  // why the backend of this hardware cannot run the model; empty: it can
  Hardware hardware;
  int64_t num_parameters = 0;
  int64_t active_parameters = 0;  // that one token uses
  int32_t max_context = 0;

  int64_t weight_bytes = 0;                                   // as the backend keeps them
  std::vector<std::pair<std::string, int64_t>> stored_bytes;  // by type, as the file has them
  struct CacheGroup {
    std::string kind;    // "full", "window", "latent"
    int32_t window = 0;  // keys that a query sees; 0: all
    int32_t layers = 0;
    int64_t token_bytes = 0;  // of one position that is kept
  };
  std::vector<CacheGroup> cache_groups;
  std::string kv_dtype;
  int32_t block_size = 0;
  int64_t block_bytes = 0;
  int64_t table_bytes = 0;        // rotary angles, for all positions
  int64_t activation_bytes = 0;   // of the largest step, logits included
  int64_t staging_bytes = 0;      // packed batches and block tables
  int64_t batch_cache_bytes = 0;  // of a model that embeds: the cache of a batch of texts
  // Of the memory, when all of the rest is given to the cache; 0 where the weights do not fit.
  int64_t cache_blocks = 0;

  int32_t context = 0;          // positions of each sequence, for what follows
  int64_t sequence_blocks = 0;  // that one sequence of `context` holds
  int64_t sequences = 0;        // how many of them fit; of a model that embeds, into one step

  int32_t prefill_tokens = 0;
  Roofline prefill;  // of one step of prefill_tokens
  // Empty for a model that embeds.
  struct Decode {
    int32_t batch = 0;  // sequences, each at `context`
    bool fits = false;
    Roofline step;
  };
  std::vector<Decode> decode;

  int64_t needed_bytes() const {
    return weight_bytes + table_bytes + activation_bytes + staging_bytes + batch_cache_bytes;
  }
};

// `options.model`, on the device that it names (api/hardware.h), for `concurrency` sequences of
// `context` positions (0: 2,048 or what the model has). Reads headers alone.
Result<ModelPlan> PlanModel(const EngineOptions& options, int32_t context, int32_t concurrency);

}  // namespace tokamak
