#include "runner/step_in_flight.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tokamak {
namespace {

constexpr int64_t kAlignment = 64;  // bytes

int64_t AlignUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Bytes of `count` values, rounded up to the alignment.
int64_t I32Bytes(int64_t count) { return AlignUp(count * static_cast<int64_t>(sizeof(int32_t))); }
int64_t I64Bytes(int64_t count) { return I32Bytes(2 * count); }

}  // namespace

void BatchLayout::SetCounts(int32_t tokens, int32_t seqs, int32_t logits, int32_t num_groups) {
  num_tokens = tokens;
  num_seqs = seqs;
  num_logits = logits;
  bytes = 0;
  const auto place = [this](int64_t size) { return std::exchange(bytes, bytes + size); };
  token_ids = place(I32Bytes(tokens));
  positions = place(I32Bytes(tokens));
  logit_rows = place(I32Bytes(logits));
  query_start_loc = place(I32Bytes(int64_t{seqs} + 1));
  seq_lens = place(I32Bytes(seqs));
  table_rows = place(I32Bytes(seqs));
  slot_mapping = place(num_groups * I64Bytes(tokens));
  updates.resize(static_cast<size_t>(num_groups));
  SetImageTokens(0, 0);
}

void BatchLayout::SetImageTokens(int32_t count, int32_t dimensions) {
  const auto place = [this](int64_t size) { return std::exchange(bytes, bytes + size); };
  num_image_tokens = count;
  rope_dimensions = dimensions;
  image_from = place(I32Bytes(count));
  image_to = place(I32Bytes(count));
  rope_positions = place(I32Bytes(int64_t{dimensions} * num_tokens));
  token_indices = place(dimensions > 0 ? I32Bytes(num_tokens) : 0);
}

void BatchLayout::SetUpdates(int32_t group, int32_t count) {
  updates[static_cast<size_t>(group)] = {
      .indices = bytes, .values = bytes + I32Bytes(count), .count = count};
  bytes += 2 * I32Bytes(count);
}

int64_t BatchLayout::SlotMappingOf(int32_t group) const {
  return slot_mapping + group * I64Bytes(num_tokens);
}

bool BatchLayout::no_updates() const {
  return std::all_of(updates.begin(), updates.end(),
                     [](const Updates& group) { return group.count == 0; });
}

int64_t StepShape::StagingBytes() const {
  BatchLayout layout;
  layout.SetCounts(max_tokens, MaxPaddedSeqs(), max_tokens, num_groups);
  layout.SetImageTokens(max_image_tokens, rope_dimensions > 1 ? rope_dimensions : 0);
  for (int32_t g = 0; g < num_groups; ++g) layout.SetUpdates(g, max_updates);
  return layout.bytes;
}

int64_t StepShape::TableBytes() const {
  return int64_t{num_groups} * max_seqs * max_blocks_per_seq *
         static_cast<int64_t>(sizeof(BlockId));
}

void StepInFlight::Reserve(const StepShape& shape) {
  const auto max_seqs = static_cast<size_t>(shape.max_seqs);
  rows.reserve(max_seqs);
  fills.reserve(max_seqs);
  sample_rows.reserve(max_seqs);
  const auto max_drafts = static_cast<size_t>(shape.max_drafts);
  drafts.reserve(max_drafts);
  sampled_results.resize(max_seqs + max_drafts);
  proposed.resize(max_drafts);
  layout.updates.reserve(static_cast<size_t>(shape.num_groups));
}

namespace {

void WriteUpdates(int32_t group, std::span<const SequenceSlots::TableUpdate> updates,
                  StepInFlight* in_flight) {
  const BatchLayout::Updates& at = in_flight->layout.updates[static_cast<size_t>(group)];
  auto* indices = reinterpret_cast<int32_t*>(in_flight->staging.data() + at.indices);
  auto* values = reinterpret_cast<int32_t*>(in_flight->staging.data() + at.values);
  for (const SequenceSlots::TableUpdate& update : updates) {
    *indices++ = update.index;
    *values++ = update.block;
  }
}

// Packs the rows of one step.
class Packer {
 public:
  Packer(const SequenceSlots& slots, const CacheSpec& cache, const StepShape& shape,
         StepInFlight* in_flight)
      : slots_(slots), cache_(cache), shape_(shape), in_flight_(*in_flight) {}

  void Pack(std::span<const StepRow> rows, int32_t padded_tokens) {
    Clear();
    LayOut(rows, padded_tokens);
    for (const StepRow& row : rows) PackRow(row);
    num_logits_ = static_cast<int32_t>(in_flight_.num_draws);
    // Packed after all rows that sample, so that the logits to sample from are contiguous.
    for (size_t i = 0; i < rows.size(); ++i) PackPromptLogprobs(rows[i], &in_flight_.rows[i]);
    PackPadding(in_flight_.layout, num_tokens_, num_seqs_, in_flight_.staging.data());
    for (int32_t t = num_tokens_; t < in_flight_.layout.num_tokens; ++t) {
      logit_rows_[num_logits_++] = t;
    }
    for (int32_t g = 0; g < shape_.num_groups; ++g) WriteUpdates(g, LastUpdates(g), &in_flight_);
    if (in_flight_.sampled_results.size() < in_flight_.num_draws) {
      in_flight_.sampled_results.resize(in_flight_.num_draws);
    }
    in_flight_.scored_results.resize(in_flight_.scored_tokens.size());
  }

 private:
  template <typename T>
  T* At(int64_t offset) const {
    return reinterpret_cast<T*>(in_flight_.staging.data() + offset);
  }

  void Clear() {
    in_flight_.rows.clear();
    in_flight_.fills.clear();
    in_flight_.bidirectional.clear();
    in_flight_.drafts.clear();
    in_flight_.scored_tokens.clear();
    in_flight_.masks.clear();
  }

  static bool NeedsLogits(const StepRow& row) { return row.sample || row.num_candidates > 0; }

  // Positions of a row whose next prompt token's logprob is wanted: [begin, end).
  std::pair<int32_t, int32_t> Scored(const StepRow& row) const {
    const SequenceSlot& slot = slots_[row.slot];
    const int32_t begin = slot.num_computed - row.num_tokens;
    if (!slot.sampling.prompt_logprobs) return {begin, begin};
    return {begin, std::max(begin, std::min(slot.num_computed, slot.num_prompt - 1))};
  }

  void LayOut(std::span<const StepRow> rows, int32_t padded_tokens) {
    int32_t tokens = 0, scored = 0, image_tokens = 0;
    bool grids = false;
    size_t masked = 0, unmasked = 0, drafts = 0, unmasked_drafts = 0;
    for (const StepRow& row : rows) {
      const auto [begin, end] = Scored(row);
      tokens += row.num_tokens;
      scored += end - begin;
      const SequenceSlot& slot = slots_[row.slot];
      slot.ForEachImage(slot.num_computed - row.num_tokens, slot.num_computed,
                        [&](const ImageSpan& span, int32_t first, int32_t last) {
                          image_tokens += last - first;
                          grids = grids || span.grid_width > 0;
                        });
      if (NeedsLogits(row)) ++(row.masked ? masked : unmasked);
      drafts += row.drafts.size();
      if (!row.masked) unmasked_drafts += row.drafts.size();
    }
    in_flight_.num_unmasked = unmasked;
    in_flight_.num_unmasked_draws = unmasked + unmasked_drafts;
    in_flight_.num_draws = unmasked + masked + drafts;
    in_flight_.sample_rows.resize(unmasked + masked);
    in_flight_.drafts.reserve(drafts);  // sample_rows refer to it
    next_masked_ = {.row = unmasked, .draw = in_flight_.num_unmasked_draws};
    const auto logits = static_cast<int32_t>(in_flight_.num_draws) + scored;
    const auto num_rows = static_cast<int32_t>(rows.size());
    const int32_t padding = std::max(0, padded_tokens - tokens);
    BatchLayout& layout = in_flight_.layout;
    layout.SetCounts(tokens + padding, padded_tokens > 0 ? padded_tokens : num_rows,
                     logits + padding, shape_.num_groups);
    layout.SetImageTokens(image_tokens, grids ? shape_.rope_dimensions : 0);
    for (int32_t g = 0; g < shape_.num_groups; ++g) {
      layout.SetUpdates(g, static_cast<int32_t>(LastUpdates(g).size()));
    }
    token_ids_ = At<int32_t>(layout.token_ids);
    positions_ = At<int32_t>(layout.positions);
    logit_rows_ = At<int32_t>(layout.logit_rows);
    query_start_loc_ = At<int32_t>(layout.query_start_loc);
    seq_lens_ = At<int32_t>(layout.seq_lens);
    table_rows_ = At<int32_t>(layout.table_rows);
    image_from_ = At<int32_t>(layout.image_from);
    image_to_ = At<int32_t>(layout.image_to);
    rope_positions_ = grids ? At<int32_t>(layout.rope_positions) : nullptr;
    if (grids) {
      auto* const indices = At<int32_t>(layout.token_indices);
      std::iota(indices, indices + layout.num_tokens, 0);
    }
    query_start_loc_[0] = 0;
  }

  void EndSequence(int32_t length, int32_t table_row) {
    seq_lens_[num_seqs_] = length;
    table_rows_[num_seqs_] = table_row;
    query_start_loc_[++num_seqs_] = num_tokens_;
  }

  void PackRow(const StepRow& row) {
    const SequenceSlot& slot = slots_[row.slot];
    const int32_t begin = slot.num_computed - row.num_tokens;
    const auto num_drafts = static_cast<int32_t>(row.drafts.size());
    const int32_t first_draft = slot.num_computed - num_drafts;
    const auto admitted = static_cast<int32_t>(slot.tokens.size());
    PackPositions(slot, begin);
    for (int32_t i = 0; i < row.num_tokens; ++i) {
      const int32_t position = begin + i;
      const int32_t t = num_tokens_ + i;
      if (position >= first_draft) {
        token_ids_[t] = row.drafts[static_cast<size_t>(position - first_draft)];
      } else if (position < admitted) {
        token_ids_[t] = slot.tokens[static_cast<size_t>(position)];
      } else {
        token_ids_[t] = 0;  // was drawn; the device fills it in
        in_flight_.fills.push_back({.slot = row.slot, .index = t});
      }
    }
    for (int32_t g = 0; g < shape_.num_groups; ++g) {
      const auto group = static_cast<size_t>(g);
      PackSlotMapping(slot.block_tables[group], cache_.groups[group].block_size, begin,
                      row.num_tokens,
                      At<int64_t>(in_flight_.layout.SlotMappingOf(g)) + num_tokens_);
    }
    slot.ForEachImage(begin, slot.num_computed,
                      [&](const ImageSpan& span, int32_t first, int32_t last) {
                        if (shape_.bidirectional_images) {
                          in_flight_.bidirectional.push_back(
                              {num_tokens_ + first - begin, num_tokens_ + last - begin});
                        }
                        const std::vector<int32_t>& rows = *slots_.encoder_rows().Find(span.image);
                        for (int32_t p = first; p < last; ++p) {
                          const int32_t image_row = span.first_row + p - span.position;
                          *image_from_++ = rows[static_cast<size_t>(image_row)];
                          *image_to_++ = num_tokens_ + p - begin;
                        }
                      });
    num_tokens_ += row.num_tokens;
    EndSequence(slot.num_computed, row.slot);
    StepInFlight::Row& packed = in_flight_.rows.emplace_back();
    packed.slot = row.slot;
    packed.end = first_draft;
    if (!NeedsLogits(row)) return;
    Place& next = row.masked ? next_masked_ : next_unmasked_;
    packed.sampled = static_cast<int32_t>(next.draw);
    packed.num_draws = num_drafts + 1;
    packed.num_proposals = row.num_proposals;
    packed.num_candidates = row.num_candidates;
    packed.wants_logprobs = slot.sampling.logprobs.has_value();
    const std::span drafts(in_flight_.drafts.end(), row.drafts.size());
    in_flight_.drafts.insert(in_flight_.drafts.end(), row.drafts.begin(), row.drafts.end());
    in_flight_.sample_rows[next.row++] = {.slot = row.slot,
                                          .position = first_draft,
                                          .drafts = drafts,
                                          .num_candidates = row.num_candidates};
    for (int32_t token = num_tokens_ - packed.num_draws; token < num_tokens_; ++token) {
      logit_rows_[next.draw++] = token;
    }
  }

  // Positions from `begin` on.
  void PackPositions(const SequenceSlot& slot, int32_t begin) {
    const int32_t rope_offset = LongRopeOffset(cache_.original_context, slot.long_rope);
    const int32_t width = in_flight_.layout.num_tokens;
    int32_t t = num_tokens_;
    slot.ForEachRopePosition(begin, slot.num_computed,
                             [&](int32_t time, int32_t row, int32_t column) {
                               positions_[t] = rope_offset + time;
                               if (rope_positions_ != nullptr) {
                                 rope_positions_[t] = time;
                                 rope_positions_[width + t] = row;
                                 rope_positions_[2 * width + t] = column;
                               }
                               ++t;
                             });
  }

  void PackPromptLogprobs(const StepRow& row, StepInFlight::Row* packed) {
    const SequenceSlot& slot = slots_[row.slot];
    packed->scored_begin = static_cast<int32_t>(in_flight_.scored_tokens.size());
    packed->prompt_top = slot.sampling.prompt_logprobs.value_or(0);
    const auto [begin, end] = Scored(row);
    const int32_t first = query_start_loc_[packed - in_flight_.rows.data()];
    for (int32_t position = begin; position < end; ++position) {
      logit_rows_[num_logits_++] = first + (position - begin);
      in_flight_.scored_tokens.push_back(slot.tokens[static_cast<size_t>(position) + 1]);
    }
    packed->scored_end = static_cast<int32_t>(in_flight_.scored_tokens.size());
  }

  std::span<const SequenceSlots::TableUpdate> LastUpdates(int32_t g) const {
    const auto updates = slots_.table_updates(g);
    return updates.last(std::min(updates.size(), static_cast<size_t>(shape_.max_updates)));
  }

  const SequenceSlots& slots_;
  const CacheSpec& cache_;
  const StepShape& shape_;
  StepInFlight& in_flight_;
  int32_t* token_ids_ = nullptr;
  int32_t* positions_ = nullptr;
  int32_t* logit_rows_ = nullptr;
  int32_t* query_start_loc_ = nullptr;
  int32_t* seq_lens_ = nullptr;
  int32_t* table_rows_ = nullptr;
  int32_t* image_from_ = nullptr;
  int32_t* image_to_ = nullptr;
  int32_t* rope_positions_ = nullptr;  // null: positions of this step have one dimension
  int32_t num_tokens_ = 0;
  int32_t num_seqs_ = 0;
  struct Place {
    size_t row = 0;  // into sample_rows
    size_t draw = 0;
  };
  Place next_unmasked_;
  Place next_masked_;
  int32_t num_logits_ = 0;
};

}  // namespace

void PackSlotMapping(std::span<const BlockId> table, int32_t block_size, int32_t begin,
                     int32_t count, int64_t* slot_mapping) {
  for (int32_t position = begin; position < begin + count; ++position) {
    const BlockId block = table[static_cast<size_t>(position / block_size)];
    *slot_mapping++ = int64_t{block} * block_size + position % block_size;
  }
}

void PackPadding(const BatchLayout& layout, int32_t num_tokens, int32_t num_seqs,
                 std::byte* staging) {
  const auto ints = [staging](int64_t offset) {
    return reinterpret_cast<int32_t*>(staging + offset);
  };
  const auto num_groups = static_cast<int32_t>(layout.updates.size());
  for (int32_t t = num_tokens; t < layout.num_tokens; ++t) {
    ints(layout.token_ids)[t] = 0;
    ints(layout.positions)[t] = 0;
    for (int32_t g = 0; g < num_groups; ++g) {
      reinterpret_cast<int64_t*>(staging + layout.SlotMappingOf(g))[t] = -1;
    }
  }
  for (int32_t s = num_seqs; s < layout.num_seqs; ++s) {
    num_tokens = std::min(num_tokens + 1, layout.num_tokens);
    ints(layout.query_start_loc)[s + 1] = num_tokens;
    ints(layout.seq_lens)[s] = 0;
    ints(layout.table_rows)[s] = 0;
  }
}

void PackRows(std::span<const StepRow> rows, int32_t padded_tokens, const SequenceSlots& slots,
              const CacheSpec& cache, const StepShape& shape, StepInFlight* in_flight) {
  Packer(slots, cache, shape, in_flight).Pack(rows, padded_tokens);
}

void PackUpdates(int32_t group, std::span<const SequenceSlots::TableUpdate> updates,
                 const StepShape& shape, StepInFlight* in_flight) {
  in_flight->layout.SetCounts(0, 0, 0, shape.num_groups);
  for (int32_t g = 0; g < shape.num_groups; ++g) {
    in_flight->layout.SetUpdates(g, g == group ? static_cast<int32_t>(updates.size()) : 0);
  }
  WriteUpdates(group, updates, in_flight);
}

}  // namespace tokamak
