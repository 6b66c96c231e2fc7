// Runs requests in the company of each other, in an engine that is short of everything.
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

// The circumstances, all of which must not matter.
struct CompanyOptions {
  std::string cuda_graphs = "off";
  int32_t steps_in_flight = 1;
  int32_t threads = 1;
  int32_t max_seqs = 0;
  int32_t max_batch_tokens = 0;
  int32_t num_blocks = 0;
  int32_t host_blocks = 0;
  bool prefix_cache = true;
  int32_t most_open = 0;     // requests at the same time
  int32_t arrival_odds = 0;  // another one comes with chance 1 in so many after each chunk

  std::string ToString() const;
};

// Just enough blocks for the largest case, and a random number more. The executor and the steps in
// flight are left for the caller to choose.
CompanyOptions RandomCompany(std::mt19937_64* random, const std::vector<Case>& cases,
                             int32_t block_size);

// Submits all cases in a random order and collects what they get. From its first request on,
// arrivals and cancellations come from within the engine's callbacks, and so at points that the
// seed alone decides: a run is repeatable, however long steps take.
class Company {
 public:
  // `base` says what decides answers (model, ISA, cache type, block size); `kv_token_bytes` is that
  // of ModelInfo.
  Company(EngineOptions base, int64_t kv_token_bytes, const CompanyOptions& options, uint64_t seed);

  // Answers in the order of `cases`, one entry per choice. `counts` is added to. An error when the
  // engine refuses a request or ends a choice twice.
  Result<std::vector<std::vector<OutputChunk>>> Run(const std::vector<Case>& cases, Counts* counts);

 private:
  Status Start();
  void SubmitSome();
  void SubmitNext();
  void Take(size_t index, OutputChunk chunk);
  void Fail(Status status);
  void Done() EXCLUDES(mutex_);

  EngineOptions base_;
  const CompanyOptions options_;
  Counts counts_;

  // Engine thread, while the engine runs.
  std::mt19937_64 random_;
  const std::vector<Case>* cases_ = nullptr;
  std::vector<size_t> order_;  // of arrival
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

  std::unique_ptr<Engine> engine_;  // its callbacks use all of the above
};

}  // namespace tokamak::invariance
