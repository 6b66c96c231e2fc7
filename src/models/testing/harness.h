// Runs a Model without an engine: sequences, a paged cache and ragged batches, for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/model.h"
#include "ops/ops.h"

namespace tokamak::testing {

struct HarnessOptions {
  int32_t block_size = 16;
  int32_t num_blocks = 256;
  int32_t max_seqs = 32;
  int32_t max_tokens = 2048;  // in one batch
  DType kv_dtype = DType::kF32;
  size_t arena_bytes = size_t{256} << 20;
  uint64_t seed = 1;           // which blocks a sequence gets
  bool hidden_states = false;  // in place of logits, of a model that was loaded to embed
};

// Keeps each sequence's length and blocks. Blocks are handed out in shuffled order, so that tests
// notice code that expects neighbours. Every error is a CHECK.
class Harness {
 public:
  using Logits = std::vector<float>;  // [vocab_size]

  struct Row {
    int sequence = 0;
    std::vector<int32_t> tokens;  // follow those that the sequence has seen
    int32_t num_logits = 1;       // logits wanted for the last so many tokens
  };

  Harness(const Model& model, Ops& ops, HarnessOptions options = {});
  ~Harness();

  // A new, empty sequence. One whose length will be known from the start may be of the long kind
  // (CacheSpec::original_context) before it is that long; others are computed anew when they get
  // there.
  int AddSequence(int32_t known_length = 0);
  int32_t length(int sequence) const;
  // Bytes that steps have needed at most, logits included.
  size_t arena_peak() const { return arena_->peak(); }

  // One step. The wanted logits, row after row.
  std::vector<Logits> Forward(const std::vector<Row>& rows);

  // The same in one call: a fresh sequence of `tokens`, in chunks of at most `chunk`, and the
  // logits at its last `num_logits` tokens.
  std::vector<Logits> Run(const std::vector<int32_t>& tokens, int32_t num_logits,
                          int32_t chunk = 1 << 30);

 private:
  struct Sequence;
  struct Group;

  void MakeCache();
  // The row, or all of its sequence where that is to be computed anew.
  Row Switch(Row row);
  void Extend(Sequence& sequence, int32_t num_tokens);
  Tensor Upload(const void* data, DType dtype, int64_t count);

  const Model& model_;
  Ops& ops_;
  const HarnessOptions options_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Arena> arena_;
  Buffer cache_;
  std::vector<KvLayerView> views_;  // per attention layer
  std::vector<Group> groups_;       // per cache group
  std::vector<Sequence> sequences_;
  std::vector<int32_t> free_blocks_;
};

// The index of the largest logit, the first of equals.
int32_t Argmax(const Harness::Logits& logits);

}  // namespace tokamak::testing
