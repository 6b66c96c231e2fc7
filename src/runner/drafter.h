// Drafter: proposes tokens with a second, smaller model, whose keys and values share the blocks of
// the runner's cache.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "models/model.h"
#include "ops/ops.h"
#include "runner/graph_runner.h"
#include "runner/sequence_slots.h"
#include "runner/step_in_flight.h"
#include "tensor/arena.h"
#include "tokamak/status.h"

namespace tokamak {

struct RunnerShape;

// Batches that may be enqueued before the host waits for the oldest.
inline constexpr size_t kDrafterBatches = 4;

// Bytes of all of a drafter's packed batches, in staging memory and on the device.
int64_t DrafterStagingBytes(const Model& draft, const RunnerShape& shape);

// Follows the positions that the runner's model computes: before a block can be shared, copied or
// swapped, it holds both models' keys. Enqueues work and waits for nothing but its own batches of
// long ago. Owned by the runner's thread.
class Drafter {
 public:
  // A row of a step whose draws are known.
  struct Row {
    SequenceSlotId slot = 0;
    int32_t wanted = 0;                       // proposals
    std::vector<int32_t>* results = nullptr;  // gets the indices of the row's results
  };
  // What the drafter shares with its runner.
  struct Shared {
    const SequenceSlots& slots;
    Sampler& sampler;
    Stream& stream;
    Arena& arena;                         // free for use
    std::span<const KvLayerView> layers;  // of the draft model
    std::span<const Tensor> tables;       // of all cache groups
  };

  // `groups` as JoinedCache::draft_groups. The references must outlive the drafter.
  static Result<std::unique_ptr<Drafter>> Create(const Model& draft, Ops& ops,
                                                 const RunnerShape& shape, const CacheSpec& cache,
                                                 std::vector<int32_t> groups);
  // Captures the graphs that run passes of few tokens. Call it once, before the first step.
  Status CaptureGraphs(const Shared& shared);

  // A sequence has got this slot, and both models' caches have its first `num_computed` positions.
  void Admit(SequenceSlotId id, const SequenceSlot& slot, int32_t num_computed);
  // The same happens to the tokens of the two sequences, and the slot's cache has the positions
  // that the source's has. Call it when nothing is behind.
  void Fork(const ForkSequence& fork);
  // The tokens from `position` on have been drawn. May be told again.
  void AddDrawn(SequenceSlotId id, int32_t position, std::span<const TokenId> drawn);
  // The runner's model has computed so many positions of the sequence. Counts only those whose
  // tokens are known.
  void NoteComputed(SequenceSlotId id, int32_t num_computed);
  // A row's proposals are known, all of those that `num_results` results give.
  void EndProposals(SequenceSlotId id, std::span<const TokenId> proposals, size_t num_results);

  // Computes positions that others may need: what is noted, as far as it is whole blocks or part of
  // a prompt. Prepares Propose for `rows`. Call it before those slots are freed.
  Status CatchUp(std::span<Row> rows, const Shared& shared);
  // Proposes behind the last token of each row. Puts a pass behind the other, without waiting for
  // proposals: `results` are complete when the stream has reached this point. There are as many as
  // all rows want.
  Status Propose(std::span<Row> rows, std::span<SampleResult> results, const Shared& shared);
  // Whether CatchUp has something to do.
  bool is_behind() const { return !behind_.empty(); }
  // All slots are free.
  void Reset() { behind_.clear(); }

  int64_t bytes() const;

 private:
  struct Slot {
    std::vector<TokenId> tokens;
    int32_t num_prompt = 0;
    int32_t num_done = 0;        // of `tokens`, by the runner's model
    int32_t computed = 0;        // of `tokens`, in the draft model's cache
    std::vector<TokenId> ahead;  // proposals that follow there, once all tokens are computed
  };
  struct Behind {
    SequenceSlotId slot = 0;
    int32_t target = 0;  // positions that the draft model is to have computed
  };
  // A sequence's part of a batch.
  struct Part {
    SequenceSlotId slot = 0;
    int32_t begin = 0;  // position
    int32_t count = 0;
  };
  // The device reads it until `done` is reached.
  struct Batch {
    Buffer staging;
    std::vector<TokenFill> fills;
    std::vector<ProposalRow> rows;
    std::unique_ptr<Event> done;
  };

  Drafter(const Model& draft, Ops& ops, const RunnerShape& shape, const CacheSpec& cache,
          std::vector<int32_t> groups);
  Slot& SlotOf(SequenceSlotId id) { return slots_[static_cast<size_t>(id)]; }
  int32_t block_size() const { return cache_.groups[0].block_size; }
  void SetTarget(SequenceSlotId id, int32_t target);
  // Runs `parts_`. With `proposal` >= 0 their tokens get so numbered proposals, into `results`, and
  // behind the first ones the tokens themselves are the proposals before.
  Status Run(int32_t proposal, std::span<SampleResult> results, const Shared& shared);
  // The number of tokens to which `parts_` are padded to run as a graph; 0 if they do not.
  int32_t PaddedTokens() const;
  void Pack(int32_t proposal, int32_t padded_tokens, const SequenceSlots& slots, Batch& batch);
  nn::Pass MakePass(const Batch& batch, const Shared& shared);

  const Model& draft_;
  Ops& ops_;
  const CacheSpec& cache_;
  const int32_t max_step_tokens_;
  const int32_t context_;     // positions that the draft model can compute
  const bool has_long_rope_;  // with the same original context as the runner's model
  const double least_logprob_;
  const std::vector<int32_t> groups_;
  std::vector<std::unique_ptr<AttentionPlan>> plans_;  // per group of the draft model
  std::vector<nn::AttentionMetadata> metadata_;
  GraphRunner graph_runner_;
  Buffer device_batch_;
  std::array<Batch, kDrafterBatches> batches_;
  size_t num_batches_ = 0;  // used so far; batch n is entry n % kDrafterBatches
  BatchLayout layout_;      // of the current batch
  std::vector<Part> parts_;
  std::vector<Slot> slots_;
  std::vector<Behind> behind_;
};

}  // namespace tokamak
