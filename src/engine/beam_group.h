// BeamGroup: the beams of a sequence with beam search, and the slots and blocks that they hold.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/beam_search.h"
#include "engine/block_manager.h"
#include "engine/text_decoder.h"
#include "engine/token_constraint.h"
#include "step/step_input.h"

namespace tokamak {

// All beams have equal length and advance in the same steps, so the scheduler treats them as one
// sequence. Its numbers of positions (Sequence) hold for each beam, and its content is the best
// beam's.
//
// A running sequence has a slot for each possible beam, a "place". The first one is Sequence::slot
// with Sequence::blocks. It computes the trunk, which all beams share: at first the prompt, after a
// preemption also the tokens that they have in common. The other beams then fork from it. When
// beams are chosen, one successor of each keeps its place and the others fork from there.
//
//   0 ....... base ................. length
//     trunk, or all before the      given to the slots by forks, while `forks`
//     tokens chosen last
class BeamGroup {
 public:
  struct Beam {
    int32_t place = 0;   // -1: has none yet
    int32_t source = 0;  // the place that it continues, if it is yet to fork or go on
    std::unique_ptr<TokenConstraint> constraint = {};  // after its tokens; null: none
    std::unique_ptr<TextDecoder> decoder = {};         // the same; null: no stop strings
    bool needs_mask() const { return constraint && constraint->num_free() == 0; }
  };
  struct Place {
    SequenceSlotId slot = -1;
    bool used = false;  // the runner has a sequence in the slot
    SequenceBlocks blocks = {};
  };
  // Makes a choice's answer.
  struct Answer {
    std::unique_ptr<TextDecoder> decoder;
    std::unique_ptr<TokenConstraint> constraint;
  };

  BeamGroup(const BeamSearchParams& params, int32_t num_prompt, int32_t max_tokens,
            std::optional<int32_t> num_logprobs)
      : search(params, max_tokens, num_logprobs),
        others(static_cast<size_t>(params.width) - 1),
        beams(1) {
    base = num_prompt;
  }

  int32_t width() const { return static_cast<int32_t>(others.size()) + 1; }
  // Rows that the sequence gets in a step behind its first `num_scheduled` positions.
  int32_t num_rows(int32_t num_scheduled) const {
    return num_scheduled < base ? 1 : static_cast<int32_t>(beams.size());
  }
  // Whether the beam goes on where its parent was.
  static bool InPlace(const Beam& beam) { return beam.place == beam.source; }
  // A place that no beam has.
  int32_t FreePlace() const;

  // The search has chosen new beams. `chosen` has their constraints and decoders. Returns the
  // places that no beam has any more.
  std::vector<int32_t> Succeed(std::vector<Beam> chosen, int32_t num_computed);
  // The sequence has given back its slots and blocks.
  void Suspend(int32_t num_prompt);

  BeamSearch search;
  std::vector<Place> others;  // the places from the second on
  std::vector<Beam> beams;    // as many as search.beams()
  std::vector<Answer> answers;
  int32_t num_candidates = 0;  // that each row returns
  int32_t num_common = 0;      // first tokens that all beams share
  int32_t base = 0;            // length of what the slots know while `forks`; of the trunk before
  bool forks = false;          // the runner does not know the beams yet
  bool searching = false;      // rows of all beams are in flight that return candidates
  std::vector<std::vector<TokenLogprobs::Entry>> candidates;  // of the rows that have retired
};

}  // namespace tokamak
