// Runs a Model without an engine, with sequences, a paged cache and ragged batches. For tests.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "models/model.h"
#include "nn/builder.h"
#include "ops/ops.h"

namespace tokamak::testing {

struct HarnessOptions {
  int32_t block_size = 16;
  int32_t num_blocks = 256;
  int32_t max_seqs = 32;
  int32_t max_tokens = 2048;  // in one batch
  DType kv_dtype = DType::kF32;
  size_t arena_bytes = size_t{256} << 20;
  uint64_t seed = 1;           // determines the blocks of each sequence
  bool hidden_states = false;  // instead of logits, for models loaded to embed
  // The n-th placeholder of an image's row in a sequence stands for image_rows[n], if there is one.
  std::vector<std::vector<float>> image_rows = {};
  // With mRoPE: heights and widths of the images that these rows are.
  std::vector<std::array<int32_t, 2>> image_grids = {};
  // For image encoders with windows, positions of two dimensions or tables of positions: of the
  // only row of a step, what its tokens have (ImageLayout).
  std::vector<int32_t> window_lens = {};
  int32_t merged_tokens = 1;  // as in ImageEncoderSpec; then logits are those of all that are left
  std::vector<std::vector<int32_t>> rope_positions = {};
  std::vector<int32_t> position_rows = {};
  std::vector<float> position_weights = {};
};

// Keeps each sequence's length and blocks. With layers that have states, only the last max_seqs
// sequences can go on. Blocks are assigned in shuffled order, to find code that
// expects neighbors. Errors are CHECKs.
class Harness {
 public:
  using Logits = std::vector<float>;  // [vocab_size]

  struct Row {
    int sequence = 0;
    std::vector<int32_t> tokens;  // the next tokens of the sequence
    int32_t num_logits = 1;       // logits are returned for the last num_logits tokens
  };

  Harness(const Model& model, Ops& ops, HarnessOptions options = {});
  ~Harness();

  // Adds an empty sequence. With a known final length it may use the long RoPE factors from the
  // start (CacheSpec::original_context); others are recomputed when they get that long.
  int AddSequence(int32_t known_length = 0);
  int32_t length(int sequence) const;
  // The shortest prefix of a text, of `count` tokens at least, that a step may end with: where
  // tokens of an image see each other, none ends within an image.
  int32_t PrefixOf(const std::vector<int32_t>& tokens, int32_t count) const;
  // The most bytes that any step has needed, logits included.
  size_t arena_peak() const { return arena_->peak(); }

  // Runs one step and returns the requested logits, row after row.
  std::vector<Logits> Forward(const std::vector<Row>& rows);

  // Runs a new sequence of `tokens` in chunks of `chunk` (see PrefixOf), and returns the logits of
  // its last `num_logits` tokens.
  std::vector<Logits> Run(const std::vector<int32_t>& tokens, int32_t num_logits,
                          int32_t chunk = 1 << 30);

 private:
  struct Sequence;
  struct Group;

  void MakeCache();
  // Returns the row, or the whole sequence if it must be recomputed.
  Row Switch(Row row);
  void Extend(Sequence& sequence, int32_t num_tokens);
  // The position of a token in its group's blocks: with windows, each begins with a block.
  int32_t PlaceOf(const Group& group, int32_t position) const;
  // Positions in three dimensions of the sequence's next token (arXiv:2409.12191, section 2.1).
  std::array<int32_t, 3> NextRopePosition(Sequence& sequence, bool shows_image) const;
  // Sets the pass's rope_positions. `all`: those of each token.
  void SetRopePositions(const std::vector<std::array<int32_t, 3>>& all, nn::Pass& pass);
  // Sets the pass's position_rows and position_weights.
  void SetPositionRows(nn::Pass& pass);
  // Uploads the step's batch. The lists must stay unchanged until it has run.
  std::vector<nn::AttentionMetadata> FillPlans(const std::vector<Row>& rows,
                                               const std::vector<int32_t>& query_start_loc,
                                               const std::vector<int32_t>& seq_lens);
  // Sets the pass's states. The lists must stay unchanged until it has run.
  void SetStates(const std::vector<Row>& rows, const std::vector<int32_t>& query_start_loc,
                 const std::vector<int32_t>& seq_lens, nn::Pass& pass);
  // Notes that a token of the step shows an image. `first`: it is the first token of its row.
  void AddToRange(int64_t token, bool first);
  // The logits of these hidden states.
  std::vector<Logits> ReadLogits(nn::Pass& pass, Tensor hidden);
  Tensor Upload(const void* data, DType dtype, int64_t count);

  const Model& model_;
  Ops& ops_;
  const HarnessOptions options_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Arena> arena_;
  Buffer cache_;
  nn::OwnedTensor image_rows_;      // f32 [rows, row_size], or empty
  std::vector<KvLayerView> views_;  // per attention layer
  std::vector<Group> groups_;       // per cache group
  Buffer states_;                   // of max_seqs sequences
  std::vector<StateLayerView> state_views_;
  std::vector<int32_t> state_slots_;  // of the step
  std::vector<int32_t> table_rows_;   // of the step
  std::vector<int32_t> rope_positions_, token_indices_;
  std::vector<BatchRows> bidirectional_;  // of the step
  std::vector<Sequence> sequences_;
  std::vector<int32_t> free_blocks_;
};

// The index of the largest logit; of equal ones the first.
int32_t Argmax(const Harness::Logits& logits);

}  // namespace tokamak::testing
