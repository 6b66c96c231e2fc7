// The part of EngineCore that keeps constrained sequences within their structured output.
#include <algorithm>
#include <iterator>
#include <memory>

#include "base/error.h"
#include "base/thread_pool.h"
#include "engine/engine_core.h"

namespace tokamak {

TokenConstraint& EngineCore::ConstraintOf(const ScheduledRow& row) {
  const Sequence& sequence = *row.sequence;
  if (!sequence.beams) return *sequence.constraint;
  return *sequence.beams->beams[static_cast<size_t>(row.beam)].constraint;
}

void EngineCore::RetireForMasks() {
  const auto needs_token = [](const ScheduledRow& row) {
    return row.masked && row.sequence->pending_tokens > 1 &&
           row.sequence->state != SequenceState::kFinished;
  };
  // An error leaves no step in flight.
  while (in_flight_.size() > 1 &&
         std::any_of(in_flight_.back().rows.begin(), in_flight_.back().rows.end(), needs_token)) {
    RetireOldest();
  }
}

std::vector<TokenMask> EngineCore::MakeMasks(const std::vector<ScheduledRow>& rows) {
  struct Made {
    const ScheduledRow* row = nullptr;
    std::vector<TokenMask> masks = {};
    Status status = {};
  };
  std::vector<Made> made;
  for (const ScheduledRow& row : rows) {
    if (!row.masked || row.sequence->state == SequenceState::kFinished) continue;
    made.push_back({.row = &row});
  }
  // Rows with the most masks go first, so that no thread is left with one of them at the end.
  std::vector<Made*> by_work;
  for (Made& one : made) by_work.push_back(&one);
  std::stable_sort(by_work.begin(), by_work.end(), [](const Made* a, const Made* b) {
    return a->row->drafts.size() > b->row->drafts.size();
  });
  const auto make = [&](int64_t item, int) {
    Made& one = *by_work[static_cast<size_t>(item)];
    one.status = FillMasks(*one.row, &one.masks);
  };
  const auto num_items = static_cast<int64_t>(made.size());
  if (pool_ != nullptr) {
    pool_->ParallelFor(num_items, make);
  } else {
    for (int64_t item = 0; item < num_items; ++item) make(item, 0);
  }
  // Requests end here, in the order of rows.
  std::vector<TokenMask> masks;
  masks.reserve(made.size());
  for (Made& one : made) {
    const Sequence& sequence = *one.row->sequence;
    // Another choice of its request had no token to draw.
    if (sequence.state == SequenceState::kFinished) continue;
    if (one.status.ok()) {
      std::move(one.masks.begin(), one.masks.end(), std::back_inserter(masks));
    } else {
      EndRequest(sequence.request, FinishReason::kError, one.status);
    }
  }
  return masks;
}

Status EngineCore::FillMasks(const ScheduledRow& row, std::vector<TokenMask>* masks) const {
  const Sequence& sequence = *row.sequence;
  const auto add = [&] {
    const auto draw = static_cast<int32_t>(masks->size());
    masks->push_back({.slot = row.slot, .draw = draw});
    return &masks->back().allowed;
  };
  RETURN_IF_ERROR(FillMask(sequence, ConstraintOf(row), add()));
  // A beam may have nothing to go on with.
  if (row.num_candidates > 0) return Status();
  if (!AllowsAny(masks->front().allowed)) return NoTokenFits(sequence);
  if (row.drafts.empty()) return Status();
  // Whether the answer can go on behind a draft only matters once it is drawn: then it is the next
  // row's first mask.
  const std::unique_ptr<TokenConstraint> ahead = sequence.constraint->Clone();
  bool goes_on = true;
  for (const TokenId draft : row.drafts) {
    std::vector<uint32_t>* const mask = add();
    goes_on = goes_on && ahead->Accept(draft) && FillMask(sequence, *ahead, mask).ok() &&
              AllowsAny(*mask);
    if (!goes_on) mask->assign(masks->front().allowed.size(), 0);
  }
  return Status();
}

Status EngineCore::FillMask(const Sequence& sequence, TokenConstraint& constraint,
                            std::vector<uint32_t>* mask) const {
  mask->assign((static_cast<size_t>(limits_.vocab_size) + 31) / 32, 0);
  RETURN_IF_ERROR(constraint.Allow(*mask));
  const RequestState& request = *sequence.request;
  const auto set = [&](TokenId id, bool allowed) {
    if (id < 0 || id >= limits_.vocab_size) return;  // some models name end tokens beyond theirs
    const uint32_t bit = uint32_t{1} << id % 32;
    uint32_t& word = (*mask)[static_cast<size_t>(id / 32)];
    word = allowed ? word | bit : word & ~bit;
  };
  for (const TokenId id : request.eos_ids) set(id, false);
  for (const TokenId id : request.sampling.stop_token_ids) set(id, constraint.complete());
  return Status();
}

bool EngineCore::AllowsAny(const std::vector<uint32_t>& mask) {
  return std::any_of(mask.begin(), mask.end(), [](uint32_t word) { return word != 0; });
}

Status EngineCore::NoTokenFits(const Sequence& sequence) {
  return InvalidArgument(
      "{}: no token can follow the {} generated ones: what it allows next is not in the "
      "vocabulary, or has probability 0, or would end the answer too early (stop_token_ids, "
      "min_tokens)",
      NameOfConstraint(*sequence.request), sequence.num_generated());
}

std::string_view EngineCore::NameOfConstraint(const RequestState& request) {
  return request.has_form ? "structured_output" : "thinking_token_budget";
}

}  // namespace tokamak
