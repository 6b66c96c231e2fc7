// Runs requests together in an engine that is short of everything.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "invariance/counting_executor.h"
#include "invariance/requests.h"
#include "tokamak/engine.h"

namespace tokamak::invariance {

// The circumstances of a run. None may change an answer.
struct BatchMixOptions {
  CudaGraphs cuda_graphs = CudaGraphs::kOff;
  int32_t steps_in_flight = 1;
  int32_t threads = 1;
  int32_t max_seqs = 0;
  int32_t max_batch_tokens = 0;
  int32_t num_blocks = 0;
  int32_t host_blocks = 0;
  bool prefix_cache = true;
  int32_t draft_tokens = 0;      // 0: no speculation
  bool always_drafts = false;    // otherwise the machine may decide whether there are any
  bool only_forced = false;      // hardly any match is long enough for drafts from the text
  int32_t draft_source = 0;      // 0: the text, 1: the model itself, 2: another model
  std::string draft_model = {};  // the path, if it is a model
  int32_t image_cache_tokens = 0;
  int32_t most_open = 0;     // concurrent requests
  int32_t arrival_odds = 0;  // after each chunk a request arrives with chance 1 in this many

  std::string ToString() const;
};

// Random circumstances: enough blocks for the largest case in all cache groups, and a random number
// more. The caller sets the executor and the steps in flight.
BatchMixOptions RandomBatchMix(std::mt19937_64* random, const std::vector<Case>& cases,
                               int32_t block_size, int32_t cache_groups);

// Submits all cases in random order and collects their answers. After the first request, arrivals
// and cancellations come from the engine's callbacks, at points that only the seed decides. So a
// run is repeatable, whatever its timing.
class BatchMix {
 public:
  // `base` has the options that may change answers (model, ISA, cache type, block size).
  // `kv_token_bytes` is ModelInfo's.
  BatchMix(EngineOptions base, int64_t kv_token_bytes, const BatchMixOptions& options,
           uint64_t seed);

  // Returns the answers in the order of `cases`, one entry per choice, and adds to `counts`. Fails
  // if the engine refuses a request or ends a choice twice.
  Result<std::vector<std::vector<OutputChunk>>> Run(const std::vector<Case>& cases, Counts* counts);

 private:
  Status Start();
  void SubmitSome();
  void SubmitNext();
  void Take(size_t index, OutputChunk chunk);
  void Fail(Status status);
  void Done() EXCLUDES(mutex_);

  EngineOptions base_;
  const BatchMixOptions options_;
  Counts counts_;

  // Engine thread only, while the engine runs.
  std::mt19937_64 random_;
  const std::vector<Case>* cases_ = nullptr;
  std::vector<size_t> order_;  // arrival order
  size_t next_ = 0;            // in order_
  size_t num_ended_ = 0;
  std::vector<RequestId> ids_;
  std::vector<int32_t> num_chunks_;
  std::vector<int32_t> open_choices_;
  std::vector<std::vector<OutputChunk>> answers_;
  Status status_;

  Mutex mutex_;
  CondVar changed_;
  bool done_ GUARDED_BY(mutex_) = false;

  std::unique_ptr<Engine> engine_;  // last member: its callbacks use the others
};

}  // namespace tokamak::invariance
