// Drafter: proposes tokens with a second, smaller model, whose keys and values share the blocks of
// the runner's cache.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "models/model.h"
#include "ops/ops.h"
#include "runner/sequence_slots.h"
#include "runner/step_in_flight.h"
#include "tensor/arena.h"
#include "tokamak/status.h"

namespace tokamak {

struct RunnerShape;

// Bytes that a drafter's packed batch takes, in staging memory and again on the device.
int64_t DrafterStagingBytes(const Model& draft, const RunnerShape& shape);

// Follows the positions that the runner's model computes: before a step is done, every whole block
// of its sequences holds both models' keys. So blocks can be shared, copied and swapped.
//
// Works on a backend that has done its work when a call returns. Owned by the runner's thread.
class Drafter {
 public:
  // A sequence with a row in a step.
  struct Row {
    SequenceSlotId slot = 0;
    int32_t num_computed = 0;  // positions that the runner's model has computed, with valid tokens
    std::vector<TokenId> drawn = {};  // in this step; the last is at position `num_computed`
    int32_t wanted = 0;               // proposals
    std::vector<TokenId>* proposals = nullptr;
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

  // A sequence has got this slot, and both models' caches have its first `num_computed` positions.
  void Admit(SequenceSlotId id, const SequenceSlot& slot, int32_t num_computed);
  // A step's tokens have been drawn: computes what is missing, and proposes. Returns the seconds
  // that the proposals took, without those for prompts.
  Result<double> Propose(std::span<Row> rows, const Shared& shared);

  int64_t bytes() const { return static_cast<int64_t>(batch_.size() + staging_.size()); }

 private:
  struct Slot {
    std::vector<TokenId> tokens;
    int32_t num_prompt = 0;
    int32_t computed = 0;        // of `tokens`, in the draft model's cache
    std::vector<TokenId> ahead;  // proposals that follow there, once all tokens are computed
  };
  // A row's part of a batch: `count` positions from the first that is not computed.
  struct Part {
    Row* row = nullptr;
    int32_t count = 0;
    bool proposes = false;  // a token behind its last position
  };

  Drafter(const Model& draft, Ops& ops, const RunnerShape& shape, const CacheSpec& cache,
          std::vector<int32_t> groups);
  Slot& SlotOf(const Row& row) { return slots_[static_cast<size_t>(row.slot)]; }
  void AddDrawn(const Row& row);
  // Positions of the row's sequence that the draft model must have computed before it proposes.
  int32_t Target(const Row& row);
  bool WantsMore(const Row& row);
  // The share of the current batch that is computed for its proposals alone.
  double ShareOfProposals() const;
  // Computes `parts_` and adds their proposals.
  Status Run(const Shared& shared);
  void Pack(const SequenceSlots& slots);
  nn::Pass MakePass(const Shared& shared);
  Status Draw(nn::Pass& pass, Tensor hidden, const Shared& shared);

  const Model& draft_;
  Ops& ops_;
  const CacheSpec& cache_;
  const int32_t max_step_tokens_;
  const int32_t context_;     // positions that the draft model can compute
  const bool has_long_rope_;  // with the same original context as the runner's model
  const float min_probability_;
  const std::vector<int32_t> groups_;
  std::vector<std::unique_ptr<AttentionPlan>> plans_;  // per group of the draft model
  std::vector<nn::AttentionMetadata> metadata_;
  Buffer batch_;
  Buffer staging_;
  BatchLayout layout_;
  std::vector<Slot> slots_;
  // The current batch.
  std::vector<Part> parts_;
  std::vector<ProposalRow> proposal_rows_;
  std::vector<TokenId> proposed_;
};

}  // namespace tokamak
