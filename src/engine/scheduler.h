// Scheduler: decides which sequences run, and how many tokens of each go into the next step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "engine/block_manager.h"
#include "engine/cost_model.h"
#include "engine/encoder_cache.h"
#include "engine/fair_share.h"
#include "engine/sequence.h"
#include "engine/step_times.h"

namespace tokamak {

struct SchedulerOptions {
  int32_t max_seqs = 0;         // sequences that hold a slot at the same time
  int32_t max_step_tokens = 0;  // at least 2
  // Wanted step time while streams are running; 0: no limit. The first prefill of a step may always
  // have `min_chunk` tokens; otherwise it might never end.
  double target_seconds = 0;
  int32_t min_chunk = 0;
  int32_t original_context = 0;  // see CacheSpec
  bool sequence_state = false;   // see CacheSpec
  int32_t whole_image_rows = 0;  // see ExecutorLimits; at most half of max_step_tokens
  int32_t quantum = 0;           // see FairShare; positive
  DraftOptions drafts;
  int32_t max_step_drafts = 0;
  int32_t depth = 1;   // steps in flight
  int32_t stages = 1;  // see ExecutorLimits

  // Prefills keep so many tokens of a step when there are many decodes, so that neither starves the
  // other.
  int32_t min_prefill() const {
    return std::min(std::max(min_chunk, whole_image_rows), max_step_tokens / 2);
  }
};

// A sequence that waited to draft and then had no drafts draws so many tokens before it waits
// again.
inline constexpr int32_t kTokensBetweenWaits = 4;

// Tokens of prompts that a step indexes for drafts from their text: 1 or 2 ms of work, so that no
// step waits long for it. Sequences above in rank come first.
inline constexpr int32_t kMostIndexed = 4096;

struct ScheduledRow {
  Sequence* sequence = nullptr;
  int32_t start = 0;  // the first position
  int32_t num_tokens = 0;
  bool sample = false;
  bool masked = false;               // see StepRow
  bool admitted = false;             // the sequence's first row in its slot
  std::vector<TokenId> drafts = {};  // its last positions; see StepRow
  int32_t num_proposals = 0;         // see StepRow
  // With beam search:
  int32_t beam = 0;            // index in BeamGroup::beams
  SequenceSlotId slot = -1;    // the sequence's, or the beam's
  bool last_beam = true;       // the sequence has no row behind this one in the step
  int32_t num_candidates = 0;  // see StepRow
};

struct Schedule {
  std::vector<ScheduledRow> rows;  // by rank
  std::vector<ForkSequence> forks = {};
  std::vector<SequenceSlotId> refilled_slots = {};  // of these forks, used before
  StepCost cost;
};

// FairShare ranks the sequences: within a priority clients share the engine in turn, and each
// client's sequences go first come, first served. One pass by rank gives each running sequence its
// next decode or prefill row, and admits waiting ones while there are tokens, slots and blocks. A
// sequence that lacks a slot or block takes it from the lowest ranked running one, never from one
// above itself. Therefore:
//
//   The best ranked sequence always progresses: nobody can preempt it, and it can preempt anyone.
//   It stays best until it has computed a new position or one arrives that ranks above it. So a
//   sequence waits at most for the sequences above it and for the turns of other clients that come
//   before its own, whatever arrives behind it.
//
// Drafts need a text whose tokens are all known, and the row behind them waits until it is known
// how many were accepted. With several steps in flight a sequence that drafts therefore misses
// steps:
//
//   All that draft do so in the same step: while a step with drafts is in flight, a sequence that
//   would draft waits for it. A sequence with a row in flight waits for that row if its known text
//   promises drafts. If it then has none, it does not wait again for kTokensBetweenWaits tokens.
//   Nothing waits unless a step is in flight, and nothing longer than 2 (depth - 1) steps.
//
//   If other sequences run in the steps between, a sequence drafts only if it expects more tokens
//   than it would draw in all these steps.
//
//   A row that wants a draft model's proposals counts as one with drafts: no row of its sequence
//   follows until they are known, and they are verified in the next step that drafts.
//
// In a pipeline several steps are computed at once, one on each stage, so sequences take turns: one
// that draws has its next row `stages` steps later, when the last stage has drawn its token, or
// once that is known. A step takes only its part of those that decode. Sequences that draft or
// search need not do so in the same step, because the steps in between are computed meanwhile.
//
// A sequence with beam search gets the rows of all its beams in one step or none (BeamGroup). What
// they continue with is known when these have retired, so it misses the steps that are submitted
// meanwhile, and all that search do so in the same steps: one that could go on waits while others'
// beams are in flight.
//
// A row ends before an image that the step cannot use: one that finds no room in the encoder cache
// beside images that rows above use, or whose encoding would make the step too long. The step's
// first image is encoded whatever it takes, if nothing can be computed before it. With
// whole_image_rows a row also ends before an image that it cannot compute to its end. The first
// prefill of a step always has the tokens for one.
//
// A sequence that outgrows CacheSpec::original_context goes back to waiting, because its keys are
// no longer valid. It is admitted again as soon as its rank allows.
//
// Owns the set of waiting and running sequences, but not the sequences. Engine thread only.
class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, BlockManager* blocks, EncoderCache* encoder,
            const CostModel* costs, const StepTimes* step_times);

  void Add(Sequence* sequence);
  // Fills the next step and counts it as in flight. `idle`: no step is in flight now.
  Schedule Next(bool idle);
  // The sequence has ended: it gets no more rows, and gives back its slot and blocks once none of
  // its rows is in flight.
  void Finish(Sequence* sequence);
  // The sequence gets no more rows until Resume, and gives back its slot and blocks once none of
  // its rows is in flight. Meanwhile it has no rank, and no sequence waits behind it.
  void Pause(Sequence* sequence);
  void Resume(Sequence* sequence);
  // A row with drafts, or that wanted proposals, has retired and drawn `num_tokens` tokens.
  void SettleDrafts(const ScheduledRow& row, int32_t num_tokens);
  // All rows of a step that returned candidates for the sequence's beams have retired.
  void SettleBeams(Sequence* sequence);
  // The host took so long between two steps that did not overlap.
  void ObserveGap(double seconds);
  // Call it when rows of this sequence have retired: it may then give back its slot and blocks.
  void RowsRetired(Sequence* sequence);
  // After an executor's reset: running sequences wait again and hold nothing.
  void Reset();

  // Slots given back since the last call, for StepInput::free.
  std::vector<SequenceSlotId> TakeFreedSlots();

  const SchedulerOptions& options() const { return options_; }

  int32_t num_waiting() const { return num_waiting_; }
  int32_t num_running() const { return static_cast<int32_t>(running_.size()); }
  int64_t num_preemptions() const { return num_preemptions_; }
  const std::vector<Sequence*>& running() const { return running_; }
  // Visits waiting sequences, best ranked first, until `visit` returns false.
  template <typename Visit>
  void ForEachWaiting(Visit visit) const {
    FairShare::Walk walk(fair_share_);
    for (int32_t left = num_waiting_; left > 0;) {
      const Sequence* sequence = walk.Next();
      if (sequence->state != SequenceState::kWaiting) continue;
      if (!visit(*sequence)) return;
      --left;
    }
  }
  // The best ranked waiting sequence that could be admitted, or null.
  Sequence* first_waiting() const;

 private:
  friend class EngineChecker;  // tests/sim: invariants after every step

  static constexpr double kAcceptanceMemory = 512;

  // The state of one call of Next.
  struct Pass {
    Schedule schedule;
    bool idle = false;
    int32_t decode_tokens = 0;        // left for decode rows
    int32_t prefill_tokens = 0;       // left for prefill rows
    int32_t min_prefill = 0;          // of prefill_tokens, not for drafts
    int32_t drafts = 0;               // left for drafts
    int32_t to_index = kMostIndexed;  // left of kMostIndexed
    bool drafts_in_flight = false;
    bool beams_in_flight = false;
    bool prefills = false;    // the step may have prefill rows
    int32_t proposals = 0;    // left for a draft model's proposals
    int32_t num_decodes = 0;  // decode rows expected
    StepCost expected;        // cost of these and of the prefill rows so far
    bool first_prefill = true;
    bool closed = false;         // no more admissions
    bool blocked = false;        // no more allocations: a higher ranked sequence waits for blocks
    int32_t reserved_slots = 0;  // for gated sequences ranked above
    int32_t promised = 0;        // blocks that prefills above have yet to allocate
  };

  // Sorts running_ by rank. Returns the sequences that the walk has passed: the running ones and
  // all that rank above the last of them.
  std::vector<Sequence*> RankRunning(FairShare::Walk* walk);
  // `ranked`: the result of RankRunning.
  void SetBudgets(const std::vector<Sequence*>& ranked);
  // Positions that the sequence's next row could cover in this step.
  int32_t Schedulable(const Sequence& sequence) const {
    const bool waits = sequence.pending_tokens > 0 &&
                       num_steps_ - sequence.last_draw < static_cast<uint64_t>(options_.stages);
    return waits ? 0 : sequence.num_schedulable();
  }
  // The most decode rows of a step, which leaves the other stages as many.
  int32_t MostDecodes() const;
  // Returns whether running_[rank] is still the same sequence.
  bool ScheduleRunning(size_t rank);
  void ScheduleBeams(size_t rank);
  // Prepares for the step's images. Those that running sequences will need are forgotten last, by
  // rank.
  void BeginImages();
  // Takes the images that the sequence's next `wanted` positions show into the step. Returns how
  // many of the positions can be computed.
  int32_t UseImages(const Sequence& sequence, int32_t wanted);
  // The fewest positions that a row of the sequence from `start` on may have: with
  // whole_image_rows, all up to the end of the image that the first one shows.
  int32_t LeastTokens(const Sequence& sequence, int32_t start) const;
  // Whether the step can use each of the sequence's images, so that it can compute a position
  // wherever what is cached ends.
  bool MayUseImages(const Sequence& sequence) const;
  bool Admit(Sequence* sequence, size_t rank);
  bool TryAdmit(Sequence* sequence, size_t rank);
  // Returns how many of `wanted` positions a row of a prompt may have. `least`: see LeastTokens.
  int32_t PrefillTokens(int32_t start, int32_t wanted, int32_t least) const;
  // Finds blocks for the next `wanted` positions of running_[rank], preempting lower ranked
  // sequences for the first `least`. Returns how many positions have blocks; 0: fewer than `least`
  // for now.
  int32_t FindBlocks(size_t rank, int32_t wanted, int32_t least);
  // BlockManager::Grow for a sequence and its beams, which fork if they have yet to.
  int32_t Grow(Sequence* sequence, int32_t positions);
  // Preempts the lowest ranked running sequence, if its rank is `first_victim` or below.
  enum class Room {
    kMade,
    kComing,  // preempted or finished sequences will give back theirs when their rows retire
    kNone,    // no sequence to take it from
  };
  Room MakeRoom(size_t first_victim);
  void Preempt(Sequence* sequence);
  // Whether the next position needs the long RoPE factors while the sequence has the short ones.
  bool MustSwitch(const Sequence& sequence) const;
  bool NeedsLongRope(int32_t num_tokens) const {
    return UsesLongRope(options_.original_context, num_tokens);
  }
  // Takes back a running sequence's slot and blocks when no row of it is in flight; then it waits.
  void Suspend(Sequence* sequence);
  // The most drafts that the sequence's next row could have.
  int32_t DraftLimit(const Sequence& sequence) const;
  // Finds drafts for the sequence's next row: Sequence::planned_drafts. Returns the probabilities
  // that at least 1, 2, ... of them are accepted.
  std::vector<double> FindDrafts(Sequence* sequence);
  // Finds drafts for all running sequences, and keeps those that pay.
  void PlanDrafts();
  // The numbers of drafts, as from ChooseDrafts, if a sequence that drafts misses the steps that
  // are submitted meanwhile.
  std::vector<int32_t> ChooseAcrossSteps(std::vector<std::vector<double>> chances, int32_t most,
                                         FunctionRef<double(int32_t)> seconds) const;
  // Whether the sequence gets no row now, so that it can draft later.
  bool MustWaitToDraft(const Sequence& sequence) const;
  // The planned drafts of the sequence, as far as the step still has room for them.
  std::vector<TokenId> TakeDrafts(Sequence* sequence) const;
  // Chooses how many tokens a draft model is to propose for each running sequence, behind its next
  // row: Sequence::planned_proposals.
  void PlanProposals();
  // The planned proposals behind a row that ends at `end` with `num_drafts` drafts, as far as the
  // step has room and there are blocks for them.
  int32_t TakeProposals(Sequence* sequence, int32_t end, int32_t num_drafts);
  // Predicts the time of a step of decode rows with so many drafts.
  double DraftSeconds(int32_t num_drafts) const;
  void AddRow(Sequence* sequence, int32_t num_tokens, bool admitted,
              std::vector<TokenId> drafts = {});
  void AddBeamRows(Sequence* sequence, int32_t num_tokens);
  // Tells the runner which tokens the beams have chosen.
  void AddForks(Sequence* sequence);
  // For the places behind the first.
  void TakeBeamSlots(Sequence* sequence);
  void GiveBeamSlots(Sequence* sequence);
  void ReleaseBeams(Sequence* sequence);
  // Does nothing if the sequence is paused.
  void StartWaiting(Sequence* sequence);
  void StopWaiting(Sequence* sequence, SequenceState state);
  SequenceSlotId TakeSlot();
  void Release(Sequence* sequence);
  void Detach(Sequence* sequence);

  const SchedulerOptions options_;
  BlockManager* const blocks_;
  EncoderCache* const encoder_;
  const CostModel* const costs_;
  const StepTimes* const step_times_;
  FairShare fair_share_;
  int32_t num_waiting_ = 0;
  std::vector<Sequence*> running_;   // by rank in the last step; state kRunning
  std::vector<Sequence*> retiring_;  // kPreempting and kFinished with rows in flight
  std::vector<SequenceSlotId> free_slots_;
  std::vector<SequenceSlotId> freed_slots_;  // since TakeFreedSlots
  int32_t num_searching_ = 0;                // sequences whose beams await candidates
  int32_t num_draft_rows_ = 0;               // rows in flight with drafts, or that want proposals
  double gap_seconds_ = 0;                   // see ObserveGap; mean of the last few
  uint64_t num_steps_ = 0;                   // scheduled, without the one that Next fills
  int64_t num_preemptions_ = 0;
  MatchAcceptance acceptance_{kAcceptanceMemory};  // of all sequences
  Pass pass_;
};

}  // namespace tokamak
