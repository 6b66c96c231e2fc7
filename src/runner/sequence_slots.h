// The runner's state of each sequence, and the rules that steps must follow.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runner/encoder_rows.h"
#include "step/step_input.h"
#include "tokamak/status.h"

namespace tokamak {

struct SequenceSlot {
  bool active = false;
  // The engine knew them when it admitted or forked; the sampler has the tokens drawn since. On
  // stages of a pipeline before the last, these have been added as far as they are known.
  std::vector<TokenId> tokens;
  int32_t num_prompt = 0;
  int32_t num_known = 0;          // tokens, including those that submitted steps draw
  int32_t num_computed = 0;       // positions written to the cache by submitted steps
  int32_t num_drafts = 0;         // of the last row, until Settle
  bool awaits_proposals = false;  // of the last row, until EndProposals
  bool long_rope = false;  // admitted with the long RoPE factors (CacheSpec::original_context)
  SamplingParams sampling;
  int32_t choice = 0;
  std::vector<ImageSpan> images;
  int32_t rope_offset = 0;  // mRoPE: what positions behind all images count less
  std::vector<std::vector<BlockId>> block_tables;  // one per cache group

  // Calls visit(span, begin, end) for the positions among [begin, end) that show images.
  template <typename Visit>
  void ForEachImage(int32_t begin, int32_t end, Visit visit) const {
    if (begin >= num_prompt) return;
    for (const ImageSpan& span : images) {
      const int32_t first = std::max(begin, span.position);
      const int32_t last = std::min(end, span.end());
      if (first < last) visit(span, first, last);
    }
  }
  // Calls visit(time, height, width) with the positions in three dimensions of each of [begin,
  // end). They depend only on the spans before and around a position, and these are part of the
  // content by which the prefix cache knows it (an image's id covers its grid), so cached keys are
  // rotated as they would be computed.
  template <typename Visit>
  void ForEachRopePosition(int32_t begin, int32_t end, Visit visit) const {
    const auto text = [&](int32_t last, int32_t offset) {
      for (; begin < last; ++begin) visit(begin + offset, begin + offset, begin + offset);
    };
    if (begin >= num_prompt) return text(end, rope_offset);
    int32_t offset = 0;
    for (const ImageSpan& span : images) {
      if (span.grid_width == 0) continue;
      text(std::min(end, span.position), offset);
      const int32_t start = span.position + offset;
      for (; begin < std::min(end, span.end()); ++begin) {
        const int32_t row = begin - span.position;
        visit(start, start + row / span.grid_width, start + row % span.grid_width);
      }
      offset += RopeOffset(span);
    }
    text(end, offset);
  }
  static int32_t RopeOffset(const ImageSpan& span) {
    if (span.grid_width == 0) return 0;
    return std::max(span.grid_width, span.num_rows / span.grid_width) - span.num_rows;
  }
  bool ShowsImage(int32_t begin, int32_t end) const {
    bool shows = false;
    ForEachImage(begin, end, [&](const ImageSpan&, int32_t, int32_t) { shows = true; });
    return shows;
  }
};

// Owned by the runner's thread.
class SequenceSlots {
 public:
  struct Limits {
    int32_t max_seqs = 0;
    int32_t max_step_tokens = 0;
    int32_t max_step_drafts = 0;
    int32_t max_step_proposals = 0;  // 0: no draft model
    int32_t max_context = 0;
    int32_t vocab_size = 0;
    int32_t max_encoder_rows = 0;  // 0: the model does not see
    int32_t max_step_image_rows = 0;
    bool mrope = false;         // images may be grids
    bool whole_images = false;  // no row ends inside an image
  };
  SequenceSlots(const Limits& limits, const CacheSpec& cache);

  // Applies the step's changes: free, forget, encode, admit, fork, append, rows. Moves what is
  // admitted out of the step. A step that breaks a rule is kInternal, with the rule, the slot and
  // the numbers; then the state is unspecified until Clear.
  Status Apply(StepInput& step);
  // A row with drafts has drawn `num_tokens` tokens: takes back the positions of the other drafts.
  void Settle(SequenceSlotId slot, int32_t num_tokens);
  // Adds drawn tokens to those of a slot, on a stage that does not draw.
  void AddDrawn(SequenceSlotId slot, std::span<const TokenId> tokens) {
    std::vector<TokenId>& known = slots_[static_cast<size_t>(slot)].tokens;
    known.insert(known.end(), tokens.begin(), tokens.end());
  }
  // The proposals that a row wanted are known.
  void EndProposals(SequenceSlotId slot) {
    slots_[static_cast<size_t>(slot)].awaits_proposals = false;
  }
  void Clear();

  // An entry that the last step appended to a group's tables. On the device the tables are one
  // array [slots, blocks per context]; `index` is the index in that array.
  struct TableUpdate {
    int32_t index = 0;
    BlockId block = kNoBlock;
  };
  std::span<const TableUpdate> table_updates(int32_t group) const {
    return table_updates_[static_cast<size_t>(group)];
  }

  // The contents of the encoder cache after all applied steps.
  const EncoderRows& encoder_rows() const { return encoder_rows_; }

  // The state after all applied steps. A row's first position is num_computed - row.num_tokens.
  const SequenceSlot& operator[](SequenceSlotId slot) const {
    return slots_[static_cast<size_t>(slot)];
  }

 private:
  Status Find(SequenceSlotId slot, SequenceSlot** found);
  Status Free(SequenceSlotId slot);
  Status CheckCopy(const CopyBlock& copy) const;
  Status Encode(const std::vector<EncodeImage>& images);
  Status CheckSampling(const SamplingParams& sampling) const;
  Status CheckSpans(const AdmitSequence& admit) const;
  Status Admit(AdmitSequence& admit);
  Status Fork(const ForkSequence& fork);
  Status Append(const AppendBlocks& append);
  Status AddRow(const StepRow& row);
  // The encoder cache has all images that positions [begin, end) show, and the last of them is not
  // cut off if images must be whole.
  Status CheckImages(const SequenceSlot& slot, int32_t begin, int32_t end) const;
  Status CheckDrafts(const SequenceSlot& slot, const StepRow& row) const;
  Status CheckTokens(SequenceSlotId slot, std::span<const TokenId> tokens) const;
  static Status CheckCandidates(const SequenceSlot& slot, const StepRow& row, int64_t end);
  // Of a row that ends at `end`.
  Status CheckProposals(const SequenceSlot& slot, const StepRow& row, int64_t end) const;
  int64_t MaxBlocks(const CacheGroup& group) const {  // per sequence
    return (int64_t{limits_.max_context} + group.block_size - 1) / group.block_size;
  }
  Status CheckTables(const SequenceSlot& slot, int32_t begin, int32_t end) const;

  const Limits limits_;
  const CacheSpec cache_;
  EncoderRows encoder_rows_;
  std::vector<SequenceSlot> slots_;
  std::vector<std::vector<TableUpdate>> table_updates_;  // per group
  std::vector<bool> has_row_;                            // in the step being applied
};

}  // namespace tokamak
