#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "engine/constrained_drafts.h"

namespace tokamak {

Scheduler::Scheduler(const SchedulerOptions& options, BlockManager* blocks, EncoderCache* encoder,
                     const CostModel* costs, const StepTimes* step_times)
    : options_(options),
      blocks_(blocks),
      encoder_(encoder),
      costs_(costs),
      step_times_(step_times),
      fair_share_(options.quantum) {
  for (SequenceSlotId slot = options.max_seqs - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

void Scheduler::Add(Sequence* sequence) {
  fair_share_.Join(sequence);
  StartWaiting(sequence);
}

void Scheduler::Pause(Sequence* sequence) {
  sequence->paused = true;
  // The client caused the pause, so it is charged for what must be recomputed.
  sequence->num_charged = 0;
  if (sequence->state == SequenceState::kWaiting) {
    StopWaiting(sequence, SequenceState::kPaused);
  } else if (sequence->state == SequenceState::kRunning) {
    Suspend(sequence);
  }
  fair_share_.Leave(sequence);
}

void Scheduler::Resume(Sequence* sequence) {
  sequence->paused = false;
  fair_share_.Join(sequence);
  if (sequence->state == SequenceState::kPaused) StartWaiting(sequence);
}

void Scheduler::StartWaiting(Sequence* sequence) {
  if (sequence->paused) {
    sequence->state = SequenceState::kPaused;
    return;
  }
  sequence->state = SequenceState::kWaiting;
  fair_share_.CountWaiting(*sequence, 1);
  ++num_waiting_;
}

void Scheduler::StopWaiting(Sequence* sequence, SequenceState state) {
  sequence->state = state;
  fair_share_.CountWaiting(*sequence, -1);
  --num_waiting_;
}

Sequence* Scheduler::first_waiting() const {
  FairShare::Walk walk(fair_share_);
  Sequence* sequence = walk.Next();
  while (sequence && (sequence->state != SequenceState::kWaiting || sequence->gated)) {
    sequence = walk.Next();
  }
  return sequence;
}

std::vector<SequenceSlotId> Scheduler::TakeFreedSlots() { return std::exchange(freed_slots_, {}); }

Schedule Scheduler::Next(bool idle) {
  pass_ = Pass{};
  pass_.idle = idle;
  // The steps of a pipeline need not wait for each other.
  pass_.drafts_in_flight = num_draft_rows_ > 0 && options_.stages == 1;
  pass_.beams_in_flight = num_searching_ > 0 && options_.stages == 1;
  fair_share_.BeginStep();
  FairShare::Walk walk(fair_share_);
  const std::vector<Sequence*> ranked = RankRunning(&walk);
  SetBudgets(ranked);
  BeginImages();
  if (options_.drafts.most > 0) PlanDrafts();
  if (options_.drafts.from_model) PlanProposals();
  size_t rank = 0;  // index in running_ of the next running sequence
  for (size_t i = 0;; ++i) {
    // After the running ones the walk goes on with waiting ones, as long as they may be admitted.
    Sequence* next = i < ranked.size() ? ranked[i] : pass_.closed ? nullptr : walk.Next();
    if (next == nullptr) break;
    if (next->state == SequenceState::kRunning) {
      if (ScheduleRunning(rank)) ++rank;
    } else if (next->state != SequenceState::kWaiting || pass_.closed) {
      continue;
    } else if (next->gated) {
      ++pass_.reserved_slots;
    } else if (Admit(next, rank)) {
      running_.insert(running_.begin() + static_cast<std::ptrdiff_t>(rank++), next);
    } else {
      pass_.closed = true;
    }
  }
  if (!pass_.schedule.rows.empty()) ++num_steps_;
  return std::move(pass_.schedule);
}

std::vector<Sequence*> Scheduler::RankRunning(FairShare::Walk* walk) {
  std::vector<Sequence*> ranked;
  std::vector<Sequence*> running;
  while (running.size() < running_.size()) {
    ranked.push_back(walk->Next());
    if (ranked.back()->state == SequenceState::kRunning) running.push_back(ranked.back());
  }
  running_ = std::move(running);
  return ranked;
}

int32_t Scheduler::MostDecodes() const {
  if (options_.stages == 1) return options_.max_step_tokens;
  int32_t all = 0, most = 0;  // rows of all sequences that decode, and of one
  for (const Sequence* sequence : running_) {
    const int32_t rows = sequence->num_rows();
    const bool decodes = sequence->num_schedulable() == 1 ||
                         sequence->length() - sequence->num_scheduled <= 1 || rows > 1;
    if (!decodes) continue;
    all += rows;
    most = std::max(most, rows);
  }
  return std::max({1, most, CeilDiv(all, options_.stages)});
}

void Scheduler::SetBudgets(const std::vector<Sequence*>& ranked) {
  const int32_t most_decodes = MostDecodes();
  int32_t decodes = 0;
  // Whether the step may have a prefill. A sequence from the queue needs a slot for it.
  const bool any_above = std::any_of(ranked.begin(), ranked.end(), [](const Sequence* sequence) {
    return sequence->state == SequenceState::kWaiting;
  });
  bool prefills = num_waiting_ > 0 && (!free_slots_.empty() || running_.empty() || any_above);
  for (const Sequence* sequence : running_) {
    const int32_t schedulable = Schedulable(*sequence);
    const bool decodes_next = schedulable == 1 || (schedulable > 1 && sequence->num_rows() > 1);
    if (decodes_next && decodes < most_decodes) {
      decodes += sequence->num_rows();
      pass_.expected.Add(sequence->num_scheduled, 1, sequence->num_rows());
    }
    prefills |= schedulable > 1;
  }
  const int32_t minimum = prefills ? options_.min_prefill() : 0;
  pass_.prefills = prefills;
  pass_.num_decodes = decodes;
  pass_.min_prefill = minimum;
  pass_.drafts = pass_.proposals = options_.max_step_drafts;
  pass_.decode_tokens = std::min(options_.max_step_tokens - minimum, most_decodes);
  pass_.prefill_tokens = std::max(minimum, options_.max_step_tokens - decodes);
}

int32_t Scheduler::PrefillTokens(int32_t start, int32_t wanted, int32_t least) const {
  const int32_t most = std::min(wanted, pass_.prefill_tokens);
  if (options_.target_seconds <= 0 || pass_.num_decodes == 0) return most;
  const int32_t fits = costs_->MaxTokens(pass_.expected, start, most, options_.target_seconds);
  if (!pass_.first_prefill) return fits;
  return std::max(fits, std::min(most, std::max(options_.min_chunk, least)));
}

bool Scheduler::ScheduleRunning(size_t rank) {
  Sequence* sequence = running_[rank];
  const int32_t schedulable = Schedulable(*sequence);
  if (schedulable == 0) return true;
  if (MustSwitch(*sequence)) {
    pass_.closed = true;  // no lower ranked sequence may take what it gives back
    Suspend(sequence);
    return false;
  }
  if (sequence->beams && sequence->num_scheduled >= sequence->beams->base) {
    ScheduleBeams(rank);
    return true;
  }
  sequence->waits_to_draft = MustWaitToDraft(*sequence);
  if (sequence->waits_to_draft) {
    sequence->has_waited = true;
    return true;
  }
  const int32_t start = sequence->num_scheduled;
  const int32_t least = LeastTokens(*sequence, start);
  const int32_t wanted = schedulable == 1 ? std::min(pass_.decode_tokens, 1)
                                          : PrefillTokens(start, schedulable, least);
  if (wanted < least) return true;
  std::vector<TokenId> drafts;
  if (schedulable == 1) drafts = TakeDrafts(sequence);
  int32_t granted = FindBlocks(rank, wanted + static_cast<int32_t>(drafts.size()), least);
  granted = UseImages(*sequence, granted);
  if (granted == 0) return true;
  if (schedulable == 1) {
    if (granted - 1 < options_.drafts.least) granted = 1;
    --pass_.decode_tokens;
    drafts.resize(static_cast<size_t>(granted - 1));
    pass_.prefill_tokens -= granted - 1;
    pass_.drafts -= granted - 1;
    pass_.expected.Add(start + 1, granted - 1);
  } else {
    pass_.prefill_tokens -= granted;
    pass_.expected.Add(start, granted);
    pass_.first_prefill = false;
  }
  if (std::exchange(sequence->has_waited, false) && drafts.empty()) {
    sequence->may_wait_from = sequence->length() + kTokensBetweenWaits;
  }
  AddRow(sequence, granted, /*admitted=*/false, std::move(drafts));
  return true;
}

bool Scheduler::MustWaitToDraft(const Sequence& sequence) const {
  if (!sequence.wants_drafts) return false;
  // The tokens before the drafts must be known.
  return sequence.rows_in_flight > 0 || pass_.drafts_in_flight;
}

int32_t Scheduler::DraftLimit(const Sequence& sequence) const {
  if (!sequence.request->speculate || Schedulable(sequence) != 1) return 0;
  if (!sequence.may_sample()) return 0;
  // With a row in flight, it may wait for that row's token if its text so far promises drafts. What
  // a constraint allows behind that token is not known.
  if (sequence.rows_in_flight > 0 &&
      (options_.depth == 1 || sequence.needs_masks(1 + options_.drafts.most) ||
       sequence.length() < sequence.may_wait_from)) {
    return 0;
  }
  int32_t most = std::min(options_.drafts.most, sequence.max_length - sequence.length() - 1);
  if (options_.original_context > 0 && !sequence.long_rope) {
    most = std::min(most, options_.original_context - sequence.length());
  }
  return std::max(0, most);
}

std::vector<double> Scheduler::FindDrafts(Sequence* sequence) {
  sequence->planned_drafts.clear();
  const int32_t most = DraftLimit(*sequence);
  if (most == 0) return {};
  sequence->num_forced_drafts = 0;
  std::vector<double> chances;
  if (options_.drafts.from_model) {
    const auto count = std::min(static_cast<int32_t>(sequence->proposals.size()), most);
    chances = sequence->proposal_acceptance.Chances(count);
  } else {
    if (!sequence->drafter) sequence->drafter = std::make_unique<TextDrafter>(options_.drafts);
    pass_.to_index -= sequence->drafter->Follow(sequence->content, pass_.to_index, &acceptance_);
    chances = sequence->drafter->Chances(most, acceptance_);
  }
  const auto propose = [&]() -> std::vector<TokenId> {
    if (options_.drafts.from_model) {
      const auto begin = sequence->proposals.begin();
      return {begin, begin + static_cast<std::ptrdiff_t>(chances.size())};
    }
    if (!options_.drafts.always && chances.empty()) return {};
    return sequence->drafter->Propose(sequence->content, most);
  };
  std::vector<TokenId> drafts;
  if (!sequence->needs_masks(1 + most)) {
    drafts = propose();
    chances.resize(std::min(chances.size(), drafts.size()));
  } else {
    ConstrainedDrafts allowed(*sequence);
    allowed.AddForced(most);
    if (allowed.size() > 0) {
      sequence->num_forced_drafts = allowed.size();
      chances = ForcedChances(allowed.size(), sequence->forced_acceptance);
    } else {
      allowed.Add(propose());
      chances.resize(std::min(chances.size(), static_cast<size_t>(allowed.size())));
    }
    drafts = allowed.Take();
  }
  const size_t usable = options_.drafts.always ? drafts.size() : chances.size();
  if (std::cmp_greater_equal(usable, options_.drafts.least)) {
    sequence->planned_drafts = std::move(drafts);
  }
  return chances;
}

void Scheduler::PlanDrafts() {
  std::vector<Sequence*> sequences;
  std::vector<std::vector<double>> chances;
  // Sequences with drafts in flight will want as many again.
  int32_t most = pass_.drafts;
  for (Sequence* sequence : running_) {
    if (options_.stages == 1) most -= sequence->num_drafts;
    std::vector<double> chance = FindDrafts(sequence);
    // Only the first of the sequences that decode get rows.
    if (std::cmp_greater_equal(sequences.size(), pass_.num_decodes)) {
      sequence->planned_drafts.clear();
    }
    sequence->wants_drafts = options_.drafts.always && !sequence->planned_drafts.empty();
    if (options_.drafts.always || sequence->planned_drafts.empty()) continue;
    sequences.push_back(sequence);
    chances.push_back(std::move(chance));
  }
  if (sequences.empty()) return;
  if (!pass_.prefills && step_times_->NeedsPlainStep(pass_.num_decodes)) {
    for (Sequence* sequence : sequences) sequence->planned_drafts.clear();
    return;
  }
  most = std::min(most, pass_.prefill_tokens - pass_.min_prefill);
  const auto seconds = [this](int32_t count) { return DraftSeconds(count); };
  // A sequence with proposals has already missed steps for them.
  const std::vector<int32_t> counts =
      options_.depth == 1 || options_.drafts.from_model
          ? ChooseDrafts(chances, most, pass_.num_decodes, seconds, step_times_->noise())
          : ChooseAcrossSteps(std::move(chances), most, seconds);
  for (size_t i = 0; i < counts.size(); ++i) {
    const int32_t count = counts[i] < options_.drafts.least ? 0 : counts[i];
    sequences[i]->planned_drafts.resize(static_cast<size_t>(count));
    sequences[i]->wants_drafts = count > 0;
  }
}

void Scheduler::PlanProposals() {
  std::vector<Sequence*> sequences;
  std::vector<std::vector<double>> chances;
  for (Sequence* sequence : running_) {
    sequence->planned_proposals = 0;
    if (pass_.drafts_in_flight) continue;
    if (!sequence->request->speculate || sequence->num_schedulable() != 1) continue;
    if (options_.drafts.always) {
      sequence->planned_proposals = options_.drafts.most;
      continue;
    }
    sequences.push_back(sequence);
    chances.push_back(sequence->proposal_acceptance.Chances(options_.drafts.most));
  }
  if (sequences.empty()) return;
  // In the long run a step verifies as many drafts as it makes proposals.
  const auto seconds = [this](int32_t count) {
    return DraftSeconds(count) + count * costs_->proposal_seconds();
  };
  const std::vector<int32_t> counts =
      options_.depth == 1
          ? ChooseDrafts(chances, pass_.proposals, pass_.num_decodes, seconds, step_times_->noise())
          : ChooseAcrossSteps(std::move(chances), pass_.proposals, seconds);
  for (size_t i = 0; i < counts.size(); ++i) {
    const int32_t count = counts[i] < options_.drafts.least ? 0 : counts[i];
    sequences[i]->planned_proposals = count;
    if (count == 0) sequences[i]->proposal_acceptance.NoteNone();
  }
}

int32_t Scheduler::TakeProposals(Sequence* sequence, int32_t end, int32_t num_drafts) {
  const int32_t planned = std::exchange(sequence->planned_proposals, 0);
  const bool samples = end - num_drafts == sequence->length() && sequence->may_sample();
  if (!samples) return 0;
  // The next row's drafts come behind the tokens that this one draws, at most one more than drafts.
  int32_t most = std::min({planned, pass_.proposals, sequence->max_length - end - 2});
  if (options_.original_context > 0 && !sequence->long_rope) {
    most = std::min(most, options_.original_context - end - 1);
  }
  const int32_t least = std::max(1, options_.drafts.least);
  if (most < least) return 0;
  most = blocks_->Grow(end + most, !pass_.blocked, &sequence->blocks) - end;
  if (most < least) return 0;
  pass_.proposals -= most;
  pass_.expected.proposals += most;
  return most;
}

void Scheduler::ObserveGap(double seconds) { gap_seconds_ += (seconds - gap_seconds_) / 8; }

std::vector<TokenId> Scheduler::TakeDrafts(Sequence* sequence) const {
  const int32_t room = std::min(pass_.drafts, pass_.prefill_tokens - pass_.min_prefill);
  std::vector<TokenId> drafts = std::exchange(sequence->planned_drafts, {});
  drafts.resize(std::min(drafts.size(), static_cast<size_t>(std::max(0, room))));
  return drafts;
}

void Scheduler::SettleDrafts(const ScheduledRow& row, int32_t num_tokens) {
  Sequence* sequence = row.sequence;
  const auto num_drafts = static_cast<int32_t>(row.drafts.size());
  sequence->num_scheduled -= num_drafts + 1 - num_tokens;
  sequence->num_drafts = sequence->num_awaited = 0;
  --num_draft_rows_;
  const int32_t num_forced = std::min(sequence->num_forced_drafts, num_drafts);
  // The first refused draft is the last one that says anything.
  for (int32_t i = 0; i < std::min(num_tokens, num_forced); ++i) {
    sequence->forced_acceptance.Note(i + 1, i + 1 < num_tokens);
  }
  if (options_.drafts.from_model && num_forced == 0) {
    sequence->proposal_acceptance.Note(num_tokens - 1, num_drafts);
  }
  sequence->num_uncharged = num_tokens - 1;
}

// True once the next position needs the long RoPE factors. Until then every row stays within the
// original context.
bool Scheduler::MustSwitch(const Sequence& sequence) const {
  return !sequence.long_rope && NeedsLongRope(sequence.num_scheduled + 1);
}

int32_t Scheduler::FindBlocks(size_t rank, int32_t wanted, int32_t least) {
  Sequence* sequence = running_[rank];
  for (;;) {
    const int32_t covered =
        Grow(sequence, sequence->num_scheduled + wanted) - sequence->num_scheduled;
    if (covered >= least) return covered;
    if (pass_.blocked) return 0;
    const Room room = MakeRoom(rank + 1);
    if (room == Room::kMade) continue;
    pass_.blocked = true;
    // A sequence that runs alone lacks blocks only if the cache holds equal copies of some of its
    // blocks. The copies cannot be evicted, because its later blocks come after them in the tree.
    // Preempted and admitted again, the sequence uses the copies and no blocks of its own for them.
    const bool alone = room == Room::kNone && running_.size() == 1 && pass_.idle;
    if (alone) Preempt(sequence);
    return 0;
  }
}

Scheduler::Room Scheduler::MakeRoom(size_t first_victim) {
  pass_.closed = true;  // a preempted sequence must not come back in the same step
  if (!retiring_.empty()) return Room::kComing;
  if (running_.size() <= first_victim) return Room::kNone;
  Sequence* victim = running_.back();
  Preempt(victim);
  return victim->state == SequenceState::kPreempting ? Room::kComing : Room::kMade;
}

void Scheduler::Preempt(Sequence* sequence) {
  sequence->preempted = true;
  ++num_preemptions_;
  ++sequence->request->num_preemptions;
  Suspend(sequence);
}

void Scheduler::Suspend(Sequence* sequence) {
  std::erase(running_, sequence);
  if (sequence->rows_in_flight > 0) {
    sequence->state = SequenceState::kPreempting;
    retiring_.push_back(sequence);
  } else {
    Release(sequence);
    StartWaiting(sequence);
  }
}

bool Scheduler::Admit(Sequence* sequence, size_t rank) {
  if (PrefillTokens(0, 1, 1) == 0 || !MayUseImages(*sequence)) return false;
  while (!TryAdmit(sequence, rank)) {
    if (MakeRoom(rank) == Room::kMade) continue;
    pass_.blocked = true;
    return false;
  }
  StopWaiting(sequence, SequenceState::kRunning);
  sequence->long_rope = NeedsLongRope(sequence->known());
  sequence->slot = TakeSlot();
  if (sequence->beams) TakeBeamSlots(sequence);
  ++sequence->request->num_holding;
  const int32_t start = sequence->num_scheduled;
  const int32_t least = LeastTokens(*sequence, start);
  const int32_t wanted = std::max(least, PrefillTokens(start, sequence->num_schedulable(), least));
  int32_t granted = blocks_->Grow(start + wanted, !pass_.blocked, &sequence->blocks) - start;
  granted = UseImages(*sequence, granted);
  CHECK(granted > 0);
  pass_.prefill_tokens -= granted;
  pass_.expected.Add(start, granted);
  pass_.first_prefill = false;
  AddRow(sequence, granted, /*admitted=*/true);
  return true;
}

bool Scheduler::TryAdmit(Sequence* sequence, size_t rank) {
  if (static_cast<int32_t>(free_slots_.size()) < pass_.reserved_slots + sequence->num_slots()) {
    return false;
  }
  const int32_t known = sequence->known();
  // Leaves higher ranked sequences the blocks for a row each, and for the rest of their prefills.
  const int32_t one_row = blocks_->BlocksFor(1, 1);
  const int32_t demand =
      rank == 0 ? 0
                : blocks_->BlocksFor(known, std::min(known, options_.max_step_tokens)) +
                      pass_.promised + static_cast<int32_t>(rank) * one_row;
  std::optional<int32_t> computed;
  const bool long_rope = NeedsLongRope(known);
  const Sequence& first = *sequence->request->choices[0];
  const bool may_share = sequence->choice > 0 && !options_.sequence_state;
  if (may_share && sequence->num_generated() == 0 && first.slot >= 0 &&
      first.num_done >= first.num_prompt && first.long_rope == long_rope) {
    computed = blocks_->TryFork(first.blocks, sequence->num_prompt - 1, demand, &sequence->blocks);
  }
  if (!computed) {
    std::string root = sequence->request->cache_root;
    if (options_.original_context > 0) root += long_rope ? '2' : '1';
    const auto row_end = [&](int32_t start) { return start + LeastTokens(*sequence, start); };
    computed = blocks_->TryAdmit(root, sequence->content, sequence->cacheable(), demand, row_end,
                                 &sequence->blocks);
  }
  if (!computed) return false;
  sequence->num_scheduled = sequence->num_done = *computed;
  return true;
}

void Scheduler::AddRow(Sequence* sequence, int32_t num_tokens, bool admitted,
                       std::vector<TokenId> drafts) {
  const int32_t start = sequence->num_scheduled;
  const auto num_drafts = static_cast<int32_t>(drafts.size());
  const int32_t end = start + num_tokens - num_drafts;
  const bool goes_on = end == sequence->length() && sequence->may_sample();
  const bool sample = goes_on && !sequence->beams;
  const bool masked = goes_on && (sequence->beams ? sequence->beams->beams[0].needs_mask()
                                                  : sequence->needs_masks(1 + num_drafts));
  const int32_t num_proposals = TakeProposals(sequence, start + num_tokens, num_drafts);
  pass_.schedule.rows.push_back({sequence, start, num_tokens, sample, masked, admitted,
                                 std::move(drafts), num_proposals,
                                 /*beam=*/0, sequence->slot, /*last_beam=*/true,
                                 goes_on && sequence->beams ? sequence->beams->num_candidates : 0});
  pass_.schedule.cost.Add(start, num_tokens);
  pass_.schedule.cost.proposals += num_proposals;
  sequence->num_scheduled += num_tokens;
  sequence->num_drafts = num_drafts;
  sequence->num_awaited = num_proposals;
  if (num_drafts + num_proposals > 0) ++num_draft_rows_;
  sequence->proposals.clear();
  fair_share_.Charge(sequence, start - std::exchange(sequence->num_uncharged, 0), end,
                     /*num_rows=*/1);
  ++sequence->rows_in_flight;
  if (sample) {
    ++sequence->pending_tokens;
    sequence->last_draw = num_steps_;
  }
  pass_.promised += blocks_->MissingBlocks(sequence->known(), sequence->blocks);
}

void Scheduler::Finish(Sequence* sequence) {
  if (sequence->state == SequenceState::kWaiting) {
    StopWaiting(sequence, SequenceState::kFinished);
  } else if (sequence->state == SequenceState::kRunning) {
    std::erase(running_, sequence);
    retiring_.push_back(sequence);
  }
  sequence->state = SequenceState::kFinished;
  if (!sequence->paused) fair_share_.Leave(sequence);
  RowsRetired(sequence);
}

void Scheduler::RowsRetired(Sequence* sequence) {
  const bool preempted = sequence->state == SequenceState::kPreempting;
  const bool finished = sequence->state == SequenceState::kFinished;
  if (sequence->rows_in_flight > 0 || sequence->slot < 0 || (!preempted && !finished)) return;
  std::erase(retiring_, sequence);
  Release(sequence);
  if (preempted) StartWaiting(sequence);
}

void Scheduler::Release(Sequence* sequence) {
  if (sequence->beams) ReleaseBeams(sequence);
  blocks_->Release(&sequence->blocks);
  freed_slots_.push_back(sequence->slot);
  Detach(sequence);
}

void Scheduler::Detach(Sequence* sequence) {
  CHECK(sequence->rows_in_flight == 0 && sequence->pending_tokens == 0);
  if (sequence->beams) GiveBeamSlots(sequence);
  free_slots_.push_back(sequence->slot);
  sequence->slot = -1;
  sequence->num_scheduled = sequence->num_done = sequence->num_uncharged = 0;
  sequence->proposals.clear();
  sequence->planned_proposals = 0;
  sequence->wants_drafts = sequence->waits_to_draft = sequence->has_waited = false;
  --sequence->request->num_holding;
}

void Scheduler::Reset() {
  std::vector<Sequence*> holding = std::exchange(running_, {});
  holding.insert(holding.end(), retiring_.begin(), retiring_.end());
  retiring_.clear();
  num_draft_rows_ = 0;
  for (Sequence* sequence : holding) {
    sequence->blocks = SequenceBlocks{};
    sequence->rows_in_flight = sequence->pending_tokens = 0;
    sequence->num_drafts = sequence->num_awaited = 0;
    Detach(sequence);
    if (sequence->state != SequenceState::kFinished) StartWaiting(sequence);
  }
  freed_slots_.clear();
}

}  // namespace tokamak
