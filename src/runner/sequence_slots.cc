#include "runner/sequence_slots.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "step/executor_limits.h"

namespace tokamak {

SequenceSlots::SequenceSlots(const Limits& limits, const CacheSpec& cache)
    : limits_(limits),
      cache_(cache),
      encoder_rows_(limits.max_encoder_rows),
      slots_(static_cast<size_t>(limits.max_seqs)),
      table_updates_(cache.groups.size()),
      has_row_(slots_.size(), false) {
  for (SequenceSlot& slot : slots_) slot.block_tables.resize(cache_.groups.size());
  for (std::vector<TableUpdate>& updates : table_updates_) updates.reserve(slots_.size());
}

void SequenceSlots::Clear() {
  for (SequenceSlot& slot : slots_) slot.active = false;
  encoder_rows_.Clear();
}

Status SequenceSlots::Apply(StepInput& step) {
  for (std::vector<TableUpdate>& updates : table_updates_) updates.clear();
  for (const SequenceSlotId slot : step.free) RETURN_IF_ERROR(Free(slot));
  for (const CopyBlock& copy : step.copies) RETURN_IF_ERROR(CheckCopy(copy));
  for (const ImageId image : step.forget) RETURN_IF_ERROR(encoder_rows_.Forget(image));
  RETURN_IF_ERROR(Encode(step.encode));
  for (AdmitSequence& admit : step.admit) RETURN_IF_ERROR(Admit(admit));
  for (const ForkSequence& fork : step.fork) RETURN_IF_ERROR(Fork(fork));
  for (const AppendBlocks& append : step.append) RETURN_IF_ERROR(Append(append));
  has_row_.assign(slots_.size(), false);
  int64_t num_tokens = 0, num_drafts = 0, num_proposals = 0;
  for (const StepRow& row : step.rows) {
    RETURN_IF_ERROR(AddRow(row));
    num_tokens += row.num_tokens;
    num_drafts += static_cast<int64_t>(row.drafts.size());
    num_proposals += row.num_proposals;
  }
  if (num_proposals > limits_.max_step_proposals) {
    return Internal("a step wants {} proposals, but there can be at most {}", num_proposals,
                    limits_.max_step_proposals);
  }
  if (num_drafts > limits_.max_step_drafts) {
    return Internal("a step has {} drafts, but at most {} fit", num_drafts,
                    limits_.max_step_drafts);
  }
  if (num_tokens > limits_.max_step_tokens) {
    return Internal("a step has {} tokens, but at most {} fit", num_tokens,
                    limits_.max_step_tokens);
  }
  return Status();
}

Status SequenceSlots::Find(SequenceSlotId slot, SequenceSlot** found) {
  if (slot < 0 || slot >= limits_.max_seqs) {
    return Internal("slot {} does not exist; there are {} slots", slot, limits_.max_seqs);
  }
  *found = &slots_[static_cast<size_t>(slot)];
  return Status();
}

Status SequenceSlots::Free(SequenceSlotId id) {
  SequenceSlot* slot = nullptr;
  RETURN_IF_ERROR(Find(id, &slot));
  if (!slot->active) return Internal("free: slot {} is free already", id);
  slot->active = false;
  return Status();
}

Status SequenceSlots::CheckCopy(const CopyBlock& copy) const {
  const auto check = [this](const char* what, Tier tier, BlockId block) {
    const bool device = tier == Tier::kDevice;
    const int32_t count = device ? cache_.num_device_blocks : cache_.num_host_blocks;
    if (block >= 0 && block < count) return Status();
    return Internal("copies: {} {} block {} does not exist; there are {} blocks", what,
                    device ? "device" : "host", block, count);
  };
  RETURN_IF_ERROR(check("source", copy.source_tier, copy.source));
  RETURN_IF_ERROR(check("destination", copy.destination_tier, copy.destination));
  if (copy.source_tier == Tier::kHost && copy.destination_tier == Tier::kHost) {
    return Internal("copies: from host block {} to host block {}; one side must be on the device",
                    copy.source, copy.destination);
  }
  return Status();
}

Status SequenceSlots::Encode(const std::vector<EncodeImage>& images) {
  int64_t num_rows = 0;
  for (const EncodeImage& image : images) {
    RETURN_IF_ERROR(encoder_rows_.Add(image));
    num_rows += image.num_rows;
  }
  if (num_rows <= limits_.max_step_image_rows) return Status();
  return Internal("a step encodes images with {} rows, but at most {} fit", num_rows,
                  limits_.max_step_image_rows);
}

// Checks only what would do harm; the engine has validated the ranges.
Status SequenceSlots::CheckSampling(const SamplingParams& sampling) const {
  const auto is_token = [this](TokenId id) { return id >= 0 && id < limits_.vocab_size; };
  for (const auto& [token, bias] : sampling.logit_bias) {
    if (!is_token(token) || !std::isfinite(bias)) {
      return Internal("logit_bias: token {} with bias {} is not valid", token, bias);
    }
  }
  for (const TokenId token : sampling.allowed_token_ids) {
    if (!is_token(token)) return Internal("allowed id {} is not in the vocabulary", token);
  }
  for (const TokenId token : sampling.dry_breaker_tokens) {
    if (!is_token(token)) return Internal("breaker id {} is not in the vocabulary", token);
  }
  for (const std::vector<TokenId>& ids : sampling.dry_breaker_sequences) {
    if (ids.empty() || !std::all_of(ids.begin(), ids.end(), is_token)) {
      return Internal("a breaker is empty or has an id that is not in the vocabulary");
    }
  }
  if (!(sampling.dry_base >= 1) || sampling.dry_allowed_length < 0 ||
      sampling.dry_allowed_length > kMaxDryAllowedLength || sampling.dry_penalty_last_n < -1 ||
      sampling.dry_penalty_last_n > kMaxRepeatLastN) {
    return Internal("dry_base is {}, dry_allowed_length {}, dry_penalty_last_n {}",
                    sampling.dry_base, sampling.dry_allowed_length, sampling.dry_penalty_last_n);
  }
  for (const std::vector<TokenId>& ids : sampling.bad_words_ids) {
    if (ids.empty() || !std::all_of(ids.begin(), ids.end(), is_token)) {
      return Internal("a bad word is empty or has an id that is not in the vocabulary");
    }
  }
  if (sampling.repeat_last_n < -1 || sampling.repeat_last_n > kMaxRepeatLastN) {
    return Internal("repeat_last_n is {}", sampling.repeat_last_n);
  }
  for (const TokenId token : sampling.stop_token_ids) {
    if (!is_token(token)) return Internal("stop id {} is not in the vocabulary", token);
  }
  for (const int32_t count :
       {sampling.logprobs.value_or(0), sampling.prompt_logprobs.value_or(0)}) {
    if (count < 0) return Internal("{} logprobs per token are wanted", count);
  }
  const float fields[] = {
      sampling.temperature,      sampling.dynatemp_range,  sampling.dynatemp_exponent,
      sampling.top_n_sigma,      sampling.top_p,           sampling.min_p,
      sampling.typical_p,        sampling.xtc_probability, sampling.xtc_threshold,
      sampling.presence_penalty, sampling.dry_multiplier,  sampling.dry_base,
      sampling.frequency_penalty};
  for (const float field : fields) {
    if (!std::isfinite(field)) return Internal("a sampling parameter is {}", field);
  }
  if (sampling.temperature < 0 || !(sampling.repetition_penalty > 0) ||
      !std::isfinite(sampling.repetition_penalty)) {
    return Internal("temperature is {}, repetition_penalty {}", sampling.temperature,
                    sampling.repetition_penalty);
  }
  return Status();
}

Status SequenceSlots::CheckSpans(const AdmitSequence& admit) const {
  int32_t free = 0;  // the first position behind the images so far
  for (const ImageSpan& span : admit.images) {
    if (span.position < free || span.first_row < 0 || span.num_rows < 1 ||
        int64_t{span.position} + span.num_rows > admit.num_prompt_tokens) {
      return Internal("slot {} shows {} rows of image {} from row {} on at position {} of {}",
                      admit.slot, span.num_rows, span.image, span.first_row, span.position,
                      admit.num_prompt_tokens);
    }
    const bool grid = span.grid_width != 0;
    if (grid && (!limits_.mrope || span.grid_width < 0 || span.first_row > 0 ||
                 span.num_rows % span.grid_width != 0)) {
      return Internal("slot {} shows image {} as a grid {} wide of {} rows from row {} on{}",
                      admit.slot, span.image, span.grid_width, span.num_rows, span.first_row,
                      limits_.mrope ? "" : ", but positions have one dimension");
    }
    free = span.end();
  }
  return Status();
}

Status SequenceSlots::Admit(AdmitSequence& admit) {
  SequenceSlot* slot = nullptr;
  RETURN_IF_ERROR(Find(admit.slot, &slot));
  if (slot->active) return Internal("admit: slot {} is in use", admit.slot);
  const auto size = static_cast<int64_t>(admit.tokens.size());
  if (size > limits_.max_context) {
    return Internal("admit: slot {} has {} tokens, but the context holds {}", admit.slot, size,
                    limits_.max_context);
  }
  if (admit.num_prompt_tokens < 0 || admit.num_prompt_tokens > size || admit.num_computed < 0 ||
      admit.num_computed >= size) {
    return Internal("admit: slot {} cannot have {} tokens with {} in the prompt and {} computed",
                    admit.slot, size, admit.num_prompt_tokens, admit.num_computed);
  }
  if (cache_.sequence_state && admit.num_computed > 0) {
    return Internal("admit: slot {} has {} computed positions, but nobody has kept their state",
                    admit.slot, admit.num_computed);
  }
  if (Status status = CheckTokens(admit.slot, admit.tokens); !status.ok()) {
    return status.WithContext("admit");
  }
  if (Status status = CheckSpans(admit); !status.ok()) return status.WithContext("admit");
  if (Status status = CheckSampling(admit.sampling); !status.ok()) {
    return status.WithContext(fmt::format("admit: slot {}", admit.slot));
  }
  slot->active = true;
  slot->tokens = std::move(admit.tokens);
  slot->num_prompt = admit.num_prompt_tokens;
  slot->num_known = static_cast<int32_t>(size);
  slot->num_computed = admit.num_computed;
  slot->num_drafts = 0;
  slot->awaits_proposals = false;
  slot->long_rope = cache_.original_context > 0 &&
                    (admit.long_rope || UsesLongRope(cache_.original_context, size));
  slot->sampling = std::move(admit.sampling);
  slot->choice = admit.choice;
  slot->images = std::move(admit.images);
  slot->rope_offset = 0;
  for (const ImageSpan& span : slot->images) slot->rope_offset += SequenceSlot::RopeOffset(span);
  for (size_t g = 0; g < slot->block_tables.size(); ++g) {
    slot->block_tables[g].clear();
    slot->block_tables[g].reserve(static_cast<size_t>(MaxBlocks(cache_.groups[g])));
  }
  return Status();
}

Status SequenceSlots::CheckTokens(SequenceSlotId slot, std::span<const TokenId> tokens) const {
  for (const TokenId token : tokens) {
    if (token >= 0 && token < limits_.vocab_size) continue;
    return Internal("slot {} has token {}, but the vocabulary has {}", slot, token,
                    limits_.vocab_size);
  }
  return Status();
}

Status SequenceSlots::Fork(const ForkSequence& fork) {
  SequenceSlot* slot = nullptr;
  SequenceSlot* source = nullptr;
  RETURN_IF_ERROR(Find(fork.slot, &slot));
  RETURN_IF_ERROR(Find(fork.source, &source));
  if (!source->active) return Internal("fork: slot {} is free", fork.source);
  if (slot != source && slot->active) return Internal("fork: slot {} is in use", fork.slot);
  const auto known = static_cast<int32_t>(source->tokens.size());
  if (source->num_known != known || source->num_computed != known || source->num_drafts > 0) {
    return Internal("fork: slot {} has {} tokens, {} of them given and {} computed", fork.source,
                    source->num_known, known, source->num_computed);
  }
  const size_t size = source->tokens.size() + fork.tokens.size();
  if (fork.tokens.empty() || size > static_cast<size_t>(limits_.max_context)) {
    return Internal("fork: slot {} gets {} tokens, but the context holds {}", fork.slot, size,
                    limits_.max_context);
  }
  if (Status status = CheckTokens(fork.slot, fork.tokens); !status.ok()) {
    return status.WithContext("fork");
  }
  if (slot != source) {
    std::vector<std::vector<BlockId>> own = std::move(slot->block_tables);
    std::vector<std::vector<BlockId>> others = std::move(source->block_tables);
    *slot = *source;
    slot->block_tables = std::move(own);
    source->block_tables = std::move(others);
    for (std::vector<BlockId>& table : slot->block_tables) table.clear();
  }
  slot->tokens.insert(slot->tokens.end(), fork.tokens.begin(), fork.tokens.end());
  slot->num_known = static_cast<int32_t>(size);
  return Status();
}

Status SequenceSlots::Append(const AppendBlocks& append) {
  SequenceSlot* slot = nullptr;
  RETURN_IF_ERROR(Find(append.slot, &slot));
  if (!slot->active) return Internal("append: slot {} is free", append.slot);
  if (append.group < 0 || static_cast<size_t>(append.group) >= cache_.groups.size()) {
    return Internal("append: slot {} has blocks for cache group {}, but there are {} groups",
                    append.slot, append.group, cache_.groups.size());
  }
  const CacheGroup& group = cache_.groups[static_cast<size_t>(append.group)];
  std::vector<BlockId>& table = slot->block_tables[static_cast<size_t>(append.group)];
  std::vector<TableUpdate>& updates = table_updates_[static_cast<size_t>(append.group)];
  const int64_t most = MaxBlocks(group);
  if (static_cast<int64_t>(table.size() + append.blocks.size()) > most) {
    return Internal("append: slot {} would have {} blocks in group {}, but the context holds {}",
                    append.slot, table.size() + append.blocks.size(), append.group, most);
  }
  for (const BlockId block : append.blocks) {
    const bool dropped = block == kNoBlock && group.kind == CacheGroupKind::kWindow;
    if (!dropped && (block < 0 || block >= cache_.num_device_blocks)) {
      return Internal("append: slot {} gets block {} in group {}, but there are {} blocks",
                      append.slot, block, append.group, cache_.num_device_blocks);
    }
    const int64_t index = append.slot * most + static_cast<int64_t>(table.size());
    updates.push_back({.index = static_cast<int32_t>(index), .block = block});
    table.push_back(block);
  }
  return Status();
}

Status SequenceSlots::AddRow(const StepRow& row) {
  SequenceSlot* slot = nullptr;
  RETURN_IF_ERROR(Find(row.slot, &slot));
  if (!slot->active) return Internal("rows: slot {} is free", row.slot);
  if (has_row_[static_cast<size_t>(row.slot)]) {
    return Internal("rows: slot {} has two rows", row.slot);
  }
  has_row_[static_cast<size_t>(row.slot)] = true;
  RETURN_IF_ERROR(CheckDrafts(*slot, row));
  const int32_t begin = slot->num_computed;
  const auto num_drafts = static_cast<int32_t>(row.drafts.size());
  const int64_t end = int64_t{begin} + row.num_tokens;
  if (row.num_tokens <= num_drafts || end - num_drafts > slot->num_known) {
    return Internal("rows: slot {} has {} tokens, {} of them computed; a row of {} does not fit",
                    row.slot, slot->num_known, begin, row.num_tokens);
  }
  if (end > limits_.max_context) {
    return Internal("rows: slot {} would reach position {}, but the context holds {}", row.slot,
                    end - 1, limits_.max_context);
  }
  if (!slot->long_rope && UsesLongRope(cache_.original_context, end)) {
    return Internal(
        "rows: slot {} would reach position {}, but was admitted with the RoPE factors for "
        "positions below {}",
        row.slot, end - 1, cache_.original_context);
  }
  if (row.sample && end - num_drafts != slot->num_known) {
    return Internal("rows: slot {} would sample after position {}, but has {} known tokens",
                    row.slot, end - num_drafts - 1, slot->num_known);
  }
  if (Status status = CheckTables(*slot, begin, static_cast<int32_t>(end)); !status.ok()) {
    return status.WithContext(fmt::format("rows: slot {}", row.slot));
  }
  if (Status status = CheckImages(*slot, begin, static_cast<int32_t>(end)); !status.ok()) {
    return status.WithContext(fmt::format("rows: slot {}", row.slot));
  }
  RETURN_IF_ERROR(CheckProposals(*slot, row, end));
  RETURN_IF_ERROR(CheckCandidates(*slot, row, end));
  slot->num_computed = static_cast<int32_t>(end);
  slot->num_drafts = num_drafts;
  slot->awaits_proposals = row.num_proposals > 0;
  if (row.sample) slot->num_known = static_cast<int32_t>(end) + 1;
  return Status();
}

Status SequenceSlots::CheckImages(const SequenceSlot& slot, int32_t begin, int32_t end) const {
  Status status;
  slot.ForEachImage(begin, end, [&](const ImageSpan& span, int32_t first, int32_t last) {
    if (limits_.whole_images && end < span.end()) {
      status = Internal("positions {} to {} show image {}, but not its last {} rows", first,
                        last - 1, span.image, span.end() - end);
      return;
    }
    const std::vector<int32_t>* const rows = encoder_rows_.Find(span.image);
    if (rows != nullptr && int64_t{span.first_row} + span.num_rows <= std::ssize(*rows)) return;
    status = Internal("positions {} to {} show image {}, of which the encoder cache has {} rows",
                      first, last - 1, span.image, rows == nullptr ? 0 : rows->size());
  });
  return status;
}

Status SequenceSlots::CheckDrafts(const SequenceSlot& slot, const StepRow& row) const {
  if (slot.num_drafts > 0) {
    return Internal("rows: slot {} has {} drafts that no Wait has settled", row.slot,
                    slot.num_drafts);
  }
  if (slot.awaits_proposals) {
    return Internal("rows: slot {} wants proposals that no Wait has returned", row.slot);
  }
  if (!row.drafts.empty() && !row.sample) {
    return Internal("rows: slot {} has drafts, but its row does not sample", row.slot);
  }
  if (!row.drafts.empty() && cache_.sequence_state) {
    return Internal("rows: slot {} has drafts, but a state cannot go back", row.slot);
  }
  for (const TokenId token : row.drafts) {
    if (token >= 0 && token < limits_.vocab_size) continue;
    return Internal("rows: slot {} has draft {}, but the vocabulary has {}", row.slot, token,
                    limits_.vocab_size);
  }
  return Status();
}

Status SequenceSlots::CheckProposals(const SequenceSlot& slot, const StepRow& row,
                                     int64_t end) const {
  if (row.num_proposals == 0) return Status();
  const int64_t last = end + row.num_proposals;
  if (row.num_proposals < 0 || !row.sample || last > limits_.max_context) {
    return Internal("rows: slot {} wants {} proposals behind position {}, but its row {}", row.slot,
                    row.num_proposals, end - 1,
                    row.sample ? "leaves no room for them" : "does not sample");
  }
  const Status status = CheckTables(slot, static_cast<int32_t>(end), static_cast<int32_t>(last));
  if (status.ok()) return status;
  return status.WithContext(fmt::format("rows: proposals of slot {}", row.slot));
}

Status SequenceSlots::CheckCandidates(const SequenceSlot& slot, const StepRow& row, int64_t end) {
  if (row.num_candidates == 0) return Status();
  const auto given = static_cast<int64_t>(slot.tokens.size());
  if (row.num_candidates > 0 && !row.sample && end == given && slot.num_known == given) {
    return Status();
  }
  return Internal(
      "rows: slot {} wants {} candidates behind position {}, but has {} tokens, {} of them given{}",
      row.slot, row.num_candidates, end - 1, slot.num_known, given,
      row.sample ? ", and samples" : "");
}

void SequenceSlots::Settle(SequenceSlotId id, int32_t num_tokens) {
  SequenceSlot& slot = slots_[static_cast<size_t>(id)];
  if (slot.num_drafts == 0) return;
  slot.num_computed -= slot.num_drafts + 1 - num_tokens;
  slot.num_known = slot.num_computed + 1;
  slot.num_drafts = 0;
}

// Checks for every block that queries at [begin, end) read or write.
Status SequenceSlots::CheckTables(const SequenceSlot& slot, int32_t begin, int32_t end) const {
  for (size_t g = 0; g < cache_.groups.size(); ++g) {
    const CacheGroup& group = cache_.groups[g];
    const std::vector<BlockId>& table = slot.block_tables[g];
    const int32_t needed = (end + group.block_size - 1) / group.block_size;
    if (static_cast<int32_t>(table.size()) < needed) {
      return Internal("the block table of group {} has {} blocks, but positions below {} need {}",
                      g, table.size(), end, needed);
    }
    if (group.kind != CacheGroupKind::kWindow) continue;
    const int32_t first = std::max(0, begin - group.window + 1) / group.block_size;
    for (int32_t i = first; i < needed; ++i) {
      if (table[static_cast<size_t>(i)] == kNoBlock) {
        return Internal(
            "entry {} of the block table of group {} is empty, but positions [{}, {}) need it", i,
            g, begin, end);
      }
    }
  }
  return Status();
}

}  // namespace tokamak
