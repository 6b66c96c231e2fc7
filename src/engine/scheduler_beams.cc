// The part of Scheduler that schedules sequences with beam search.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/scheduler.h"

namespace tokamak {

void Scheduler::ScheduleBeams(size_t rank) {
  Sequence* sequence = running_[rank];
  const int32_t schedulable = sequence->num_schedulable();
  const int32_t rows = sequence->num_rows();
  if (schedulable == 1 && pass_.beams_in_flight) return;
  // The first position counts as decode, so that even what is recomputed gets its turn. The others
  // take what prompts leave.
  const int32_t first = pass_.decode_tokens >= rows ? 1 : 0;
  const int32_t others = (schedulable - first) * rows;
  const int32_t start = sequence->num_scheduled + first;
  const int32_t more = others > 0 ? PrefillTokens(start, others, 1) / rows : 0;
  if (first + more == 0) return;
  const int32_t granted = FindBlocks(rank, first + more, 1);
  if (granted == 0) return;
  pass_.decode_tokens -= first * rows;
  if (granted > first) {
    pass_.prefill_tokens -= (granted - first) * rows;
    pass_.expected.Add(start, granted - first, rows);
    pass_.first_prefill = false;
  }
  AddBeamRows(sequence, granted);
}

int32_t Scheduler::Grow(Sequence* sequence, int32_t positions) {
  const bool may_allocate = !pass_.blocked;
  const int32_t start = sequence->num_scheduled;
  if (!sequence->beams || start < sequence->beams->base) {
    return blocks_->Grow(positions, may_allocate, &sequence->blocks);
  }
  BeamGroup& group = *sequence->beams;
  const auto missing = [&](int32_t to) {
    int32_t total = 0;
    for (const BeamGroup::Beam& beam : group.beams) {
      total += beam.place < 0 ? blocks_->BlocksFor(1, 1)
                              : blocks_->MissingBlocks(to, sequence->blocks_at(beam.place));
    }
    return total;
  };
  // Either all beams fork and have the next position, or none does: a fork that waits for a step
  // keeps the blocks that it copies, also after the sequence has given way to others.
  if (missing(start + 1) > (may_allocate ? blocks_->num_available() : 0)) return start;
  for (BeamGroup::Beam& beam : group.beams) {
    if (beam.place >= 0) continue;
    const int32_t place = group.FreePlace();
    const bool forked =
        may_allocate && blocks_->TryFork(sequence->blocks_at(beam.source), group.base, /*demand=*/0,
                                         &sequence->blocks_at(place));
    if (!forked) return start;
    beam.place = place;
  }
  const auto grow = [&](int32_t to) {
    int32_t covered = to;
    for (const BeamGroup::Beam& beam : group.beams) {
      SequenceBlocks* const blocks = &sequence->blocks_at(beam.place);
      covered = std::min(covered, blocks_->Grow(to, may_allocate, blocks));
    }
    return covered;
  };
  // The next position has blocks in all beams before any beam gets some for later ones.
  const int32_t covered = grow(std::min(positions, start + 1));
  if (covered <= start) return start;
  // Later positions take at most half of what is left, so that no sequence gives way for them.
  return missing(positions) <= blocks_->num_available() / 2 ? grow(positions) : covered;
}

void Scheduler::AddBeamRows(Sequence* sequence, int32_t num_tokens) {
  BeamGroup& group = *sequence->beams;
  if (group.forks) AddForks(sequence);
  const int32_t start = sequence->num_scheduled;
  const int32_t end = start + num_tokens;
  const bool chooses = end == sequence->length() && sequence->may_sample();
  const size_t num_beams = group.beams.size();
  for (size_t i = 0; i < num_beams; ++i) {
    pass_.schedule.rows.push_back({.sequence = sequence,
                                   .start = start,
                                   .num_tokens = num_tokens,
                                   .masked = chooses && group.beams[i].needs_mask(),
                                   .beam = static_cast<int32_t>(i),
                                   .slot = sequence->slot_at(group.beams[i].place),
                                   .last_beam = i + 1 == num_beams,
                                   .num_candidates = chooses ? group.num_candidates : 0});
  }
  pass_.schedule.cost.Add(start, num_tokens, static_cast<int32_t>(num_beams));
  if (chooses) {
    group.searching = true;
    ++num_searching_;
  }
  fair_share_.Charge(sequence, start, end, static_cast<int32_t>(num_beams));
  sequence->num_scheduled = end;
  sequence->rows_in_flight += static_cast<int32_t>(num_beams);
}

void Scheduler::AddForks(Sequence* sequence) {
  BeamGroup& group = *sequence->beams;
  // A source goes on itself after the others have forked from it.
  for (const bool in_place : {false, true}) {
    for (size_t i = 0; i < group.beams.size(); ++i) {
      const BeamGroup::Beam& beam = group.beams[i];
      if (BeamGroup::InPlace(beam) != in_place) continue;
      const std::vector<TokenId>& tokens = group.search.beams()[i].tokens;
      const SequenceSlotId slot = sequence->slot_at(beam.place);
      pass_.schedule.forks.push_back(
          {.slot = slot,
           .source = sequence->slot_at(beam.source),
           .tokens = {tokens.begin() + (group.base - sequence->num_prompt), tokens.end()}});
      if (in_place) continue;
      bool used = true;  // the first place always is
      if (beam.place > 0) {
        used = std::exchange(group.others[static_cast<size_t>(beam.place) - 1].used, true);
      }
      if (used) pass_.schedule.refilled_slots.push_back(slot);
    }
  }
  group.forks = false;
}

void Scheduler::SettleBeams(Sequence* sequence) {
  if (std::exchange(sequence->beams->searching, false)) --num_searching_;
}

SequenceSlotId Scheduler::TakeSlot() {
  const SequenceSlotId slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void Scheduler::TakeBeamSlots(Sequence* sequence) {
  for (BeamGroup::Place& place : sequence->beams->others) place.slot = TakeSlot();
}

void Scheduler::GiveBeamSlots(Sequence* sequence) {
  SettleBeams(sequence);
  for (const BeamGroup::Place& place : sequence->beams->others) free_slots_.push_back(place.slot);
  sequence->beams->Suspend(sequence->num_prompt);
}

void Scheduler::ReleaseBeams(Sequence* sequence) {
  for (BeamGroup::Place& place : sequence->beams->others) {
    blocks_->Release(&place.blocks);
    if (place.used) freed_slots_.push_back(place.slot);
    place.used = false;
  }
}

}  // namespace tokamak
