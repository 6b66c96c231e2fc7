// Scheduler: decides which sequences run, and how many tokens of each go into the next step.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "engine/block_manager.h"
#include "engine/client_turns.h"
#include "engine/cost_model.h"
#include "engine/sequence.h"

namespace tokamak {

struct SchedulerOptions {
  int32_t max_seqs = 0;         // sequences that hold a slot at the same time
  int32_t max_step_tokens = 0;  // at least 2
  // Wanted step time while streams are running; 0: none. The first prefill of a step gets
  // `min_chunk` tokens even so, or it would never end.
  double target_seconds = 0;
  int32_t min_chunk = 0;
  int32_t original_context = 0;  // as in CacheSpec
  int32_t turn_tokens = 0;       // as in ClientTurns; positive
};

struct ScheduledRow {
  Sequence* sequence = nullptr;
  int32_t start = 0;  // the first position
  int32_t num_tokens = 0;
  bool sample = false;
  bool admitted = false;  // the sequence's first row in its slot
};

struct Schedule {
  std::vector<ScheduledRow> rows;  // by rank
  StepCost cost;
};

// Clients share the engine in turn within a priority, first come, first served within a client:
// ClientTurns ranks the sequences. One pass over them by rank gives each running one its next
// decode or prefill row and admits waiting ones as long as there are tokens, slots and blocks. A
// sequence that cannot get a slot or a block takes it from the lowest ranked running one, never
// from one above it. So:
//
//   The best ranked sequence always progresses: nobody can preempt it, and it can preempt everyone.
//   It stays the best until it has computed a new position or one arrives that ranks above it.
//   Hence a sequence waits at most for the work of those above it and for the turns of the other
//   clients that come before its own, whatever arrives behind it.
//
// A sequence that outgrows the length up to which its keys hold (CacheSpec::original_context) is
// put back to waiting, and admitted again at once as far as ranks have it.
//
// Owns the set of waiting and running sequences, not the sequences. Engine thread only.
class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, BlockManager* blocks, const CostModel* costs);

  void Add(Sequence* sequence);
  // Fills the next step and counts it as in flight. `idle`: no step is in flight now.
  Schedule Next(bool idle);
  // The sequence has ended: gets no more rows, and gives back what it holds as soon as none of its
  // rows is in flight.
  void Finish(Sequence* sequence);
  // The sequence gets no more rows until Resume, and gives back what it holds as soon as none of
  // its rows is in flight. Nobody stands behind it meanwhile, and it stands in no turn.
  void Pause(Sequence* sequence);
  void Resume(Sequence* sequence);
  // Rows of this sequence have retired: preempted and finished ones may now let go.
  void Drained(Sequence* sequence);
  // After an executor's reset: running sequences wait again and own nothing.
  void Reset();

  // Slots given back since the last call, for StepInput::free.
  std::vector<SequenceSlotId> TakeFreedSlots();

  int32_t num_waiting() const { return num_waiting_; }
  int32_t num_running() const { return static_cast<int32_t>(running_.size()); }
  int64_t num_preemptions() const { return num_preemptions_; }
  const std::vector<Sequence*>& running() const { return running_; }
  // Visits sequences that wait, the best ranked first, until `visit` returns false.
  template <typename Visit>
  void ForEachWaiting(Visit visit) const {
    ClientTurns::Walk walk(turns_);
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

  // The state of one call of Next.
  struct Pass {
    Schedule schedule;
    bool idle = false;
    int32_t decode_tokens = 0;   // left for decode rows
    int32_t prefill_tokens = 0;  // left for prefill rows
    int32_t num_decodes = 0;     // decode rows expected
    StepCost expected;           // these, and the prefill rows so far
    bool first_prefill = true;
    bool closed = false;         // no more admissions
    bool blocked = false;        // no more allocations: a higher ranked sequence waits for blocks
    int32_t reserved_slots = 0;  // for gated sequences ranked above
    int32_t promised = 0;        // blocks that prefills above have yet to allocate
  };

  // Sorts running_ by rank and returns what the walk has passed by then: these and whatever ranks
  // above the last of them.
  std::vector<Sequence*> RankRunning(ClientTurns::Walk* walk);
  // `ranked` as above.
  void SetBudgets(const std::vector<Sequence*>& ranked);
  // Returns whether running_[rank] is still the same sequence.
  bool ScheduleRunning(size_t rank);
  bool Admit(Sequence* sequence, size_t rank);
  bool TryAdmit(Sequence* sequence, size_t rank);
  int32_t PrefillTokens(int32_t start, int32_t wanted) const;
  // Blocks for the next `wanted` tokens of running_[rank], preempting lower ranked sequences for
  // the first of them. Returns how many tokens have blocks; 0: none for now.
  int32_t FindBlocks(size_t rank, int32_t wanted);
  // Preempts the lowest ranked running sequence, if its rank is `first_victim` or below.
  enum class Room {
    kMade,
    kComing,  // preempted or finished sequences will give theirs when their rows have retired
    kNone,    // nobody to take it from
  };
  Room MakeRoom(size_t first_victim);
  void Preempt(Sequence* sequence);
  // Whether its next position needs angles of the other kind.
  bool MustSwitch(const Sequence& sequence) const;
  bool NeedsLongRope(int32_t num_tokens) const {
    return UsesLongRope(options_.original_context, num_tokens);
  }
  // Takes a running sequence's slot and blocks as soon as no row of it is in flight; then it waits.
  void Suspend(Sequence* sequence);
  void AddRow(Sequence* sequence, int32_t num_tokens, bool admitted);
  // Unless it is paused.
  void StartWaiting(Sequence* sequence);
  void StopWaiting(Sequence* sequence, SequenceState state);
  // Takes slot and blocks back.
  void Release(Sequence* sequence);
  void Detach(Sequence* sequence);

  const SchedulerOptions options_;
  BlockManager* const blocks_;
  const CostModel* const costs_;
  ClientTurns turns_;
  int32_t num_waiting_ = 0;
  std::vector<Sequence*> running_;   // by rank in the last step; state kRunning
  std::vector<Sequence*> draining_;  // kPreempting and kFinished with rows in flight
  std::vector<SequenceSlotId> free_slots_;
  std::vector<SequenceSlotId> freed_slots_;  // since TakeFreedSlots
  int64_t num_preemptions_ = 0;
  Pass pass_;
};

}  // namespace tokamak
