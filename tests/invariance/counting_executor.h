// Counts what an engine asks of its executor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/executor.h"

namespace tokamak::invariance {

// The cases that a run must have met.
struct Needs {
  // The mixes ran on a GPU, some with graphs and none with a draft model. Drafts with masks and
  // ends of reasoning are then not needed, as such runs have few requests.
  bool graphs = false;
  bool draft_models = false;  // drafts by either model
  bool images = false;        // the model takes them
  bool states = false;        // the model keeps them, so it has no prefix cache and no drafts
};

struct Counts {
  int64_t requests = 0;   // compared; counted once per mix
  int64_t cancelled = 0;  // of these, cancelled before their end
  int64_t tokens = 0;     // generated in mixed batches
  int64_t steps = 0;
  int64_t overlapped = 0;    // of these, submitted while another was in flight
  int64_t graph_steps = 0;   // of these, decode steps with CUDA graphs on
  int64_t graph_drafts = 0;  // of these, with drafts
  int64_t mixed_steps = 0;   // with prefills and decodes
  int64_t chunks = 0;        // rows that end inside a prompt
  int64_t cached_tokens = 0;
  int64_t part_hits = 0;  // prompts whose cached prefix ends inside a block
  int64_t forks = 0;      // choices that start from the cache entries of choice 0
  int64_t preemptions = 0;
  int64_t resumed = 0;  // admissions of sequences with generated tokens
  int64_t swapped_out = 0;
  int64_t swapped_in = 0;
  int64_t drafts = 0;
  int64_t accepted_drafts = 0;
  int64_t masked_drafts = 0;    // of all drafts, in rows with masks
  int64_t masked_accepted = 0;  // of these, accepted
  int64_t thoughts_ended = 0;   // answers whose reasoning has a budget and the closing mark
  int64_t own_drafts = 0;       // by the model as its own draft model
  int64_t other_drafts = 0;     // by another model
  int64_t images_encoded = 0;
  int64_t images_forgotten = 0;    // by the encoder cache, for others
  int64_t chunks_in_images = 0;    // rows that end inside an image
  int64_t hits_in_images = 0;      // admissions whose cached prefix ends inside an image
  int64_t frees_in_images = 0;     // sequences preempted or cancelled inside an image
  int64_t drafts_with_images = 0;  // of sequences with images
  int64_t one_thread = 0;          // mixes, by number of threads
  int64_t two_threads = 0;

  void Add(const Counts& other);
  std::string ToString() const;
  // The name of the first count that is zero although the test needs it, or "".
  std::string FirstZero(const Needs& needs) const;
};

// Passes calls on to `inner`, except Done: there `seed` decides at random whether the engine waits
// for a step or goes on. So steps overlap even on a CPU, and a run on a GPU can be repeated.
// `graphs`: decode steps use them. `counts` must outlive the executor, whose thread changes it.
std::unique_ptr<Executor> MakeCountingExecutor(std::unique_ptr<Executor> inner, bool graphs,
                                               uint64_t seed, Counts* counts);

}  // namespace tokamak::invariance
