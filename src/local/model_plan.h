// The memory that a model needs and its best possible speed, from its configuration alone: runs the
// model on a backend that only counts.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "local/hardware.h"
#include "tokamak/engine.h"

namespace tokamak {

// Two lower bounds for the time of a pass: for its reads, and for its multiplications.
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
  std::string refusal;   // why this backend cannot run the model; empty: it can
  Hardware hardware;     // of rank 0
  int32_t ranks = 1;     // of all stages
  int32_t replicas = 1;  // data parallelism: hardware and figures are those of one
  // The stages of a pipeline, first to last. The rest of this struct is for one of them, that with
  // room for the fewest sequences: what its rank 0 needs; its others need no more. Empty: there is
  // one stage.
  struct Stage {
    int32_t first_layer = 0;
    int32_t end_layer = 0;
    int64_t weight_bytes = 0;
    int64_t token_bytes = 0;  // of the cache, per position
    int64_t needed_bytes = 0;
    int64_t cache_blocks = 0;
  };
  std::vector<Stage> stages;
  size_t fullest_stage = 0;
  int64_t num_parameters = 0;
  int64_t active_parameters = 0;  // used by one token
  int32_t max_context = 0;

  int64_t weight_bytes = 0;                                   // stored as the backend does
  std::vector<std::pair<std::string, int64_t>> stored_bytes;  // by type, as in the file
  struct CacheGroup {
    std::string kind;    // "full", "window", "latent"
    int32_t window = 0;  // keys that a query sees; 0: all
    int32_t layers = 0;
    int64_t token_bytes = 0;  // per position
  };
  std::vector<CacheGroup> cache_groups;  // with the draft model's layers
  std::string kv_dtype;
  int32_t block_size = 0;
  int64_t block_bytes = 0;
  std::string draft_model;           // the path; empty: none
  int64_t draft_bytes = 0;           // its weights and RoPE tables
  int64_t draft_token_bytes = 0;     // the part of cache_groups that its layers take per position
  int64_t table_bytes = 0;           // RoPE tables for all positions
  int64_t activation_bytes = 0;      // for the largest step, logits included
  int64_t staging_bytes = 0;         // packed batches and block tables
  int64_t encoder_bytes = 0;         // for images, besides the encoder's weights
  int64_t sequence_state_bytes = 0;  // what layers with a state keep of a sequence
  int64_t state_bytes = 0;           // of as many sequences as may run together
  int64_t batch_cache_bytes = 0;     // embedding models: cache of a batch of texts
  // Blocks if the cache gets all remaining memory; 0 if the weights do not fit.
  int64_t cache_blocks = 0;

  int32_t context = 0;          // positions per sequence, for the rest of this struct
  int64_t sequence_blocks = 0;  // held by one sequence of `context` positions
  int64_t sequences = 0;        // how many of them fit; embedding models: into one step

  int32_t prefill_tokens = 0;
  Roofline prefill;  // one step of prefill_tokens, on the slowest stage
  // Empty for embedding models.
  struct Decode {
    int32_t batch = 0;  // sequences, each with `context` positions
    bool fits = false;
    // Until each has its next token. In a pipeline they are in as many steps as there are stages,
    // each of which takes as long as on the slowest stage.
    Roofline step;
  };
  std::vector<Decode> decode;

  // If the model does not fit, the smallest layout with which it would: the options to give, such
  // as "--tp 4". Empty: there is none, or it fits.
  std::string layout_that_fits;

  int64_t needed_bytes() const {
    return weight_bytes + draft_bytes + table_bytes + activation_bytes + staging_bytes +
           encoder_bytes + state_bytes + batch_cache_bytes;
  }
  bool fits() const { return needed_bytes() <= hardware.memory_bytes && sequences > 0; }
};

// Plans `options.model` on the device named there (local/hardware.h), for `concurrency` sequences
// of `context` positions (0: 2,048 or the model's maximum). Reads headers only.
Result<ModelPlan> PlanModel(const EngineOptions& options, int32_t context, int32_t concurrency);

}  // namespace tokamak
