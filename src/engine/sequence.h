// Sequence and RequestState: what the engine knows about accepted work.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/arrival.h"
#include "engine/beam_group.h"
#include "engine/block_manager.h"
#include "engine/drafts.h"
#include "step/step_input.h"
#include "tokamak/request.h"

namespace tokamak {

struct ClientQueue;
struct RequestState;

enum class SequenceState {
  kWaiting,  // no slot, no blocks
  kRunning,  // has both; rows may be in flight
  // Preempted, or changing its RoPE factors: gets no rows, and waits again when those in flight
  // have retired.
  kPreempting,
  kPaused,    // no slot, no blocks, no turn until it is resumed
  kFinished,  // its last chunk is out; gives back what it holds when no row is in flight
};

// One choice of a request. Owned by its RequestState. The scheduler and the engine core change it,
// on the engine thread.
//
//   0 ........ num_done ........ num_scheduled ........ length()
//     computed          in flight             to do (placeholders for pending tokens last)
struct Sequence {
  RequestState* request = nullptr;
  int32_t choice = 0;
  SequenceState state = SequenceState::kWaiting;
  bool gated = false;      // waits for choice 0 to compute the prompt
  bool preempted = false;  // at least once
  bool paused = false;     // gets no rows; kPreempting until those in flight have retired
  bool long_rope = false;  // last admitted with the long RoPE factors (CacheSpec::original_context)
  int32_t num_cached = 0;  // positions found in the prefix cache when it was last admitted
  std::optional<TimePoint> last_token;  // when its latest token was drawn

  std::vector<ContentId> content;  // prompt, then known generated tokens
  int32_t num_prompt = 0;
  int32_t images_end = 0;  // the position behind the last image; 0: there is none
  int32_t max_length = 0;  // prompt and all tokens that it may generate

  SequenceSlotId slot = -1;
  int32_t num_scheduled = 0;      // positions computed by submitted steps
  int32_t num_done = 0;           // positions computed by retired steps
  int32_t num_charged = 0;        // positions charged to its client
  int32_t num_uncharged = 0;      // accepted drafts; charged with the next row
  int32_t pending_tokens = 0;     // tokens that steps in flight will draw, beside drafts
  uint64_t last_draw = 0;         // the step that draws the last of them, as the scheduler counts
  int32_t num_drafts = 0;         // of the row in flight; the last positions of num_scheduled
  int32_t num_awaited = 0;        // proposals that the last row in flight wants
  int32_t num_forced_drafts = 0;  // so many of the latest drafts, the first, are forced text
  int32_t rows_in_flight = 0;
  bool wants_drafts = false;    // drafts as soon as it can; see Scheduler
  bool waits_to_draft = false;  // got no row in the last step because of that
  bool has_waited = false;      // that is why it missed a step since its last row
  int32_t may_wait_from = 0;    // length from which it may wait for its own rows to draft
  SequenceBlocks blocks;
  std::vector<TokenId> proposals;  // a draft model's, for the next row in this slot
  int32_t planned_proposals = 0;   // to be made behind its next row, if it gets one
  ProposalAcceptance proposal_acceptance;

  // Logprobs are known for prompt tokens 1 to num_prompt_logprobs.
  bool wants_prompt_logprobs = false;
  std::vector<TokenLogprobs> prompt_logprobs;  // until the first chunk takes them
  int32_t num_prompt_logprobs = 0;

  std::vector<TokenId> planned_drafts;                      // for its next row, if it gets one
  std::unique_ptr<TextDrafter> drafter;                     // null until it may have drafts
  MatchAcceptance forced_acceptance{TextDrafter::kMemory};  // by the place among forced drafts
  std::unique_ptr<TextDecoder> decoder;                     // may be null
  // Has been given the generated tokens of `content`. May be null.
  std::unique_ptr<TokenConstraint> constraint;
  // Null: no beam search. With it there is one sequence for all choices, without a decoder and a
  // constraint of its own.
  std::unique_ptr<BeamGroup> beams;

  int32_t known() const { return static_cast<int32_t>(content.size()); }
  int32_t length() const { return known() + pending_tokens; }
  int32_t num_generated() const { return known() - num_prompt; }
  bool may_sample() const { return length() < max_length; }
  bool prompt_only() const { return max_length == num_prompt; }
  // Whether some of its next `count` draws, behind those of steps in flight, need masks.
  bool needs_masks(int32_t count) const {
    return constraint && constraint->num_free() < pending_tokens + count;
  }
  // Positions that the next row could cover: 0 if its last token has been drawn or a step in flight
  // will draw it, or if a step in flight decides how many drafts are accepted or come next.
  int32_t num_schedulable() const {
    if (num_drafts + num_awaited > 0) return 0;
    if (beams && num_scheduled < beams->base) return beams->base - num_scheduled;
    if (beams && beams->forks && rows_in_flight > 0) return 0;
    return may_sample() || prompt_only() ? length() - num_scheduled : 0;
  }
  // Positions that may come from cached blocks. At least one must be computed, and so must those
  // whose prompt logprobs are missing.
  int32_t cacheable() const {
    const int32_t limit = (beams ? beams->base : known()) - 1;
    return prompt_logprobs_missing() ? std::min(limit, num_prompt_logprobs) : limit;
  }
  // With beam search, a place's slot and blocks (BeamGroup).
  SequenceSlotId slot_at(int32_t place) const {
    return place == 0 ? slot : beams->others[static_cast<size_t>(place) - 1].slot;
  }
  SequenceBlocks& blocks_at(int32_t place) {
    return place == 0 ? blocks : beams->others[static_cast<size_t>(place) - 1].blocks;
  }
  // Rows that it gets in a step, and slots that it holds.
  int32_t num_rows() const { return beams ? beams->num_rows(num_scheduled) : 1; }
  int32_t num_slots() const { return beams ? beams->width() : 1; }
  bool prompt_logprobs_missing() const {
    return wants_prompt_logprobs && num_prompt_logprobs < num_prompt - 1;
  }
};

// A request that has not ended or whose sequences still hold something. Owned by the engine core.
struct RequestState {
  RequestId id = 0;
  uint64_t number = 0;  // counts arrivals
  // The seed is set. stop_token_ids is sorted and includes the model's end tokens, unless these are
  // ignored. Fields that concern only text are left out: decoders and constraints have them.
  SamplingParams sampling;
  bool has_form = false;         // its answers have a structured output
  std::vector<TokenId> eos_ids;  // the model's own end tokens; only if has_form
  int32_t priority = 0;
  std::string client;
  ClientQueue* queue = nullptr;  // the queue that its choices are in
  std::string cache_root;
  std::vector<ArrivalImage> images;
  std::vector<TokenId> prompt;  // with the placeholder tokens of images; empty if it has none
  std::shared_ptr<const OutputCallback> on_output;  // null: none
  Usage usage;
  std::vector<std::unique_ptr<Sequence>> choices;  // or one sequence with beams
  int32_t num_unfinished = 0;
  int32_t num_holding = 0;  // sequences that are not released
  bool scheduled = false;   // has run or ended
  bool paused = false;      // all of its choices are paused
  bool speculate = true;    // may have drafts
  int idle_rounds = 0;      // rounds in which nothing ran although this was next

  TimePoint arrived{};          // given by Submit's caller
  TimePoint first_scheduled{};  // once `scheduled`
  std::optional<TimePoint> first_token;
  int32_t num_preemptions = 0;
  int32_t num_steps = 0;           // steps with rows of it
  int32_t num_drafts = 0;          // of retired steps
  int32_t num_accepted = 0;        // of those
  std::vector<int32_t> drafts_at;  // num_drafts by their index in the row
  std::vector<int32_t> accepted_drafts_at;
  double saved_seconds = 0;                // see RequestTimings
  uint64_t last_round = 0;                 // the scheduler's last round with rows of it
  FinishReason end = FinishReason::kStop;  // the greatest among its ended choices
  std::string label;
};

// The order of a client's sequences: earlier arrival, then lower choice.
struct ByArrival {
  bool operator()(const Sequence* a, const Sequence* b) const {
    const uint64_t number_a = a->request->number;
    const uint64_t number_b = b->request->number;
    return number_a != number_b ? number_a < number_b : a->choice < b->choice;
  }
};

}  // namespace tokamak
