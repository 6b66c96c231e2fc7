// What an engine really asked of its executor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/executor.h"

namespace tokamak::invariance {

struct Counts {
  int64_t requests = 0;   // compared, once per company they were in
  int64_t cancelled = 0;  // of them, before their end
  int64_t tokens = 0;     // generated in company
  int64_t steps = 0;
  int64_t overlapped = 0;   // of them, submitted while another was in flight
  int64_t graph_steps = 0;  // of them, decodes where these are recorded launches
  int64_t mixed_steps = 0;  // with prefills and decodes
  int64_t chunks = 0;       // rows that end inside a prompt
  int64_t cached_tokens = 0;
  int64_t part_hits = 0;  // prompts whose cached beginning ends inside a block
  int64_t forks = 0;      // choices that start from the cache entries of their first
  int64_t preemptions = 0;
  int64_t resumed = 0;  // admissions of sequences that had generated tokens
  int64_t swapped_out = 0;
  int64_t swapped_in = 0;
  int64_t one_thread = 0;  // companies, by number of threads
  int64_t two_threads = 0;

  void Add(const Counts& other);
  std::string ToString() const;
  // The first count that must not be zero in a test that proves something; empty if there is none.
  // `graphs`: some companies had them.
  std::string FirstZero(bool graphs) const;
};

// Passes everything on to `inner`, but for Done: chance decides, by `seed` alone, whether the
// engine waits for a step or goes on without it. So steps overlap on a CPU too, and a run on a GPU
// can be repeated. `graphs`: of decode steps. `counts` must outlive it and is changed by the engine
// thread.
std::unique_ptr<Executor> MakeCountingExecutor(std::unique_ptr<Executor> inner, bool graphs,
                                               uint64_t seed, Counts* counts);

}  // namespace tokamak::invariance
