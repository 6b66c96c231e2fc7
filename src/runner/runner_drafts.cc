// The part of Runner that has a draft model follow the steps and propose tokens.
#include <algorithm>
#include <chrono>
#include <vector>

#include "base/error.h"
#include "runner/runner.h"

namespace tokamak {

Drafter::Shared Runner::SharedWithDrafter() {
  return {.slots = slots_,
          .sampler = *sampler_,
          .stream = *stream_,
          .arena = *arena_,
          .layers = pool_.layers().subspan(model_.spec().cache.layers.size()),
          .tables = drafter_tables_};
}

Status Runner::Draft(StepInFlight* in_flight) {
  in_flight->proposing_seconds = 0;
  in_flight->must_propose = std::any_of(in_flight->rows.begin(), in_flight->rows.end(),
                                        [](const auto& row) { return row.num_proposals > 0; });
  if (in_flight->must_propose) {
    ops_.Record(*in_flight->drawn, *stream_);
    return ops_.Reached(*in_flight->drawn) ? Propose(in_flight) : Status();
  }
  // Tokens of answers may not be known yet; what they are missing is computed before the first step
  // that may need it.
  for (const StepInFlight::Row& row : in_flight->rows) drafter_->NoteComputed(row.slot, row.end);
  RETURN_IF_ERROR(drafter_->CatchUp({}, SharedWithDrafter()));
  ops_.Record(*in_flight->done, *stream_);
  return Status();
}

Status Runner::EndDrafting() {
  for (uint64_t number = next_wait_; number < num_sampled_; ++number) {
    // The next step may free or change the slots.
    if (InFlight(number).must_propose) RETURN_IF_ERROR(Propose(&InFlight(number)));
  }
  if (!drafter_->is_behind()) return Status();
  // What has been waited for since the last step may now be shared, copied or freed.
  RETURN_IF_ERROR(drafter_->CatchUp({}, SharedWithDrafter()));
  pool_.CopyBehind(*stream_);
  return Status();
}

Status Runner::Propose(StepInFlight* in_flight) {
  in_flight->must_propose = false;
  RETURN_IF_ERROR(ops_.Await(*in_flight->drawn));
  for (uint64_t number = next_wait_; number <= in_flight->number; ++number) {
    NoteDrawn(InFlight(number));
  }
  drafter_rows_.clear();
  for (StepInFlight::Row& row : in_flight->rows) {
    if (row.num_proposals == 0) continue;
    const SampleResult& first = in_flight->sampled_results[static_cast<size_t>(row.sampled)];
    if (first.health != RowHealth::kOk) continue;
    drafter_rows_.push_back(
        {.slot = row.slot, .wanted = row.num_proposals, .results = &row.proposals});
  }
  const Drafter::Shared shared = SharedWithDrafter();
  RETURN_IF_ERROR(drafter_->CatchUp(drafter_rows_, shared));
  const auto start = std::chrono::steady_clock::now();
  const bool timed = in_flight->proposing_begin != nullptr;
  if (timed) ops_.Record(*in_flight->proposing_begin, *stream_);
  RETURN_IF_ERROR(drafter_->Propose(drafter_rows_, in_flight->proposed, shared));
  if (timed) ops_.Record(*in_flight->proposing_end, *stream_);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  in_flight->proposing_seconds = taken.count();
  ops_.Record(*in_flight->done, *stream_);
  return Status();
}

void Runner::NoteDrawn(const StepInFlight& in_flight) {
  std::vector<TokenId> drawn;
  for (const StepInFlight::Row& row : in_flight.rows) {
    drawn.clear();
    for (int32_t i = 0; i < row.num_draws; ++i) {
      const int32_t index = row.sampled + i;
      const SampleResult& draw = in_flight.sampled_results[static_cast<size_t>(index)];
      if (draw.token == kNotDrawn || draw.health != RowHealth::kOk) break;
      drawn.push_back(draw.token);
    }
    drafter_->AddDrawn(row.slot, row.end, drawn);
    const auto accepted = std::max(0, static_cast<int32_t>(drawn.size()) - 1);
    drafter_->NoteComputed(row.slot, row.end + accepted);
  }
}

double Runner::ProposingSeconds(const StepInFlight& in_flight) const {
  if (in_flight.proposing_seconds == 0 || in_flight.proposing_begin == nullptr) {
    return in_flight.proposing_seconds;
  }
  return ops_.SecondsBetween(*in_flight.proposing_begin, *in_flight.proposing_end);
}

}  // namespace tokamak
