// The part of EngineCore that keeps constrained sequences within their structured output.
#include <algorithm>

#include "base/error.h"
#include "base/thread_pool.h"
#include "engine/engine_core.h"

namespace tokamak {

void EngineCore::RetireForMasks() {
  const auto needs_token = [](const ScheduledRow& row) {
    return row.sample && row.sequence->constraint && row.sequence->pending_tokens > 1 &&
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
    const Sequence* sequence = nullptr;
    std::vector<uint32_t> mask = {};
    Status status = {};
  };
  std::vector<Made> made;
  for (const ScheduledRow& row : rows) {
    const Sequence& sequence = *row.sequence;
    if (!row.sample || !sequence.constraint || sequence.state == SequenceState::kFinished) continue;
    made.push_back({.sequence = &sequence});
  }
  const auto make = [&](int64_t item, int) {
    Made& one = made[static_cast<size_t>(item)];
    one.status = FillMask(*one.sequence, &one.mask);
  };
  const auto num_masks = static_cast<int64_t>(made.size());
  if (pool_ != nullptr) {
    pool_->ParallelFor(num_masks, make);
  } else {
    for (int64_t item = 0; item < num_masks; ++item) make(item, 0);
  }
  // Callbacks run here, in the order of rows.
  std::vector<TokenMask> masks;
  masks.reserve(made.size());
  for (Made& one : made) {
    // Another choice of its request had no token to draw.
    if (one.sequence->state == SequenceState::kFinished) continue;
    if (one.status.ok()) {
      masks.push_back({.slot = one.sequence->slot, .allowed = std::move(one.mask)});
    } else {
      EndRequest(one.sequence->request, FinishReason::kError, one.status);
    }
  }
  return masks;
}

Status EngineCore::FillMask(const Sequence& sequence, std::vector<uint32_t>* mask) const {
  mask->assign((static_cast<size_t>(limits_.vocab_size) + 31) / 32, 0);
  RETURN_IF_ERROR(sequence.constraint->Allow(*mask));
  const RequestState& request = *sequence.request;
  const auto set = [&](TokenId id, bool allowed) {
    if (id < 0 || id >= limits_.vocab_size) return;  // some models name end tokens beyond theirs
    const uint32_t bit = uint32_t{1} << id % 32;
    uint32_t& word = (*mask)[static_cast<size_t>(id / 32)];
    word = allowed ? word | bit : word & ~bit;
  };
  for (const TokenId id : request.eos_ids) set(id, false);
  for (const TokenId id : request.sampling.stop_token_ids) set(id, sequence.constraint->complete());
  const bool any = std::any_of(mask->begin(), mask->end(), [](uint32_t word) { return word != 0; });
  return any ? Status() : NoTokenFits(sequence);
}

Status EngineCore::NoTokenFits(const Sequence& sequence) {
  return InvalidArgument(
      "structured_output: no token can follow the {} generated ones: what it allows next is not in "
      "the vocabulary, or has probability 0, or would end the answer too early (stop_token_ids, "
      "min_tokens)",
      sequence.num_generated());
}

}  // namespace tokamak
