#include "runner/drafter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "ops/graph_batch.h"
#include "runner/attention_shapes.h"
#include "runner/runner.h"

namespace tokamak {
namespace {

int32_t ContextOf(const ModelSpec& draft, int32_t max_context, int32_t original_context) {
  const int32_t context = std::min(draft.max_context, max_context);
  // A model that changes its RoPE factors elsewhere cannot follow beyond that place.
  const int32_t original = draft.cache.original_context;
  return original > 0 && original != original_context ? std::min(context, original) : context;
}

BatchLayout LargestBatch(const Model& draft, const RunnerShape& shape) {
  BatchLayout layout;
  const int32_t rows = shape.max_seqs + shape.max_step_drafts;  // a graph's may be padding
  layout.SetCounts(shape.max_step_tokens, rows, rows,
                   static_cast<int32_t>(draft.spec().cache.groups.size()));
  return layout;
}

}  // namespace

int64_t DrafterStagingBytes(const Model& draft, const RunnerShape& shape) {
  return static_cast<int64_t>(kDrafterBatches + 1) * LargestBatch(draft, shape).bytes;
}

Drafter::Drafter(const Model& draft, Ops& ops, const RunnerShape& shape, const CacheSpec& cache,
                 std::vector<int32_t> groups)
    : draft_(draft),
      ops_(ops),
      cache_(cache),
      max_step_tokens_(shape.max_step_tokens),
      context_(ContextOf(draft.spec(), shape.max_context, cache.original_context)),
      has_long_rope_(draft.spec().cache.original_context > 0 &&
                     draft.spec().cache.original_context == cache.original_context),
      least_logprob_(shape.draft_min_probability > 0 ? std::log(double{shape.draft_min_probability})
                                                     : -std::numeric_limits<double>::infinity()),
      groups_(std::move(groups)),
      slots_(static_cast<size_t>(shape.max_seqs)) {}

Result<std::unique_ptr<Drafter>> Drafter::Create(const Model& draft, Ops& ops,
                                                 const RunnerShape& shape, const CacheSpec& cache,
                                                 std::vector<int32_t> groups) {
  std::unique_ptr<Drafter> drafter(new Drafter(draft, ops, shape, cache, std::move(groups)));
  ASSIGN_OR_RETURN(const std::vector<AttentionShape> shapes,
                   AttentionShapes(draft.spec().cache, shape));
  for (const AttentionShape& attention : shapes) {
    ASSIGN_OR_RETURN(std::unique_ptr<AttentionPlan> plan, ops.MakeAttentionPlan(attention));
    drafter->metadata_.push_back({.plan = plan.get(), .slot_mapping = {}});
    drafter->plans_.push_back(std::move(plan));
  }
  const auto bytes = static_cast<size_t>(LargestBatch(draft, shape).bytes);
  ASSIGN_OR_RETURN(drafter->device_batch_, ops.Allocate(bytes, MemoryKind::kDevice));
  for (Batch& batch : drafter->batches_) {
    ASSIGN_OR_RETURN(batch.staging, ops.Allocate(bytes, MemoryKind::kHostPinned));
    batch.done = ops.MakeEvent();
  }
  // A sequence whose drafts have all been accepted lacks its last two tokens.
  const int32_t most = 2 * std::min(shape.max_seqs, shape.max_step_drafts);
  ASSIGN_OR_RETURN(drafter->graph_runner_,
                   GraphRunner::Make(shape.cuda_graphs, ops,
                                     std::min({most, shape.max_seqs + shape.max_step_drafts,
                                               shape.max_step_tokens})));
  return drafter;
}

Status Drafter::CaptureGraphs(const Shared& shared) {
  for (const int32_t num_tokens : graph_runner_.capture_sizes()) {
    parts_.clear();
    Pack(/*proposal=*/0, num_tokens, shared.slots, batches_[0]);
    nn::Pass pass = MakePass(batches_[0], shared);
    RETURN_IF_ERROR(graph_runner_.Capture(draft_, pass));
    RETURN_IF_ERROR(ops_.Synchronize(shared.stream));  // the next size reuses the batch
  }
  return Status();
}

int64_t Drafter::bytes() const {
  size_t bytes = device_batch_.size();
  for (const Batch& batch : batches_) bytes += batch.staging.size();
  return static_cast<int64_t>(bytes);
}

void Drafter::Admit(SequenceSlotId id, const SequenceSlot& admitted, int32_t num_computed) {
  Slot& slot = SlotOf(id);
  slot.tokens = admitted.tokens;
  slot.num_prompt = admitted.num_prompt;
  slot.num_done = num_computed;
  slot.computed = std::min(num_computed, context_);
  slot.ahead.clear();
}

void Drafter::Fork(const ForkSequence& fork) {
  Slot& slot = SlotOf(fork.slot);
  if (fork.slot != fork.source) slot = SlotOf(fork.source);
  slot.tokens.insert(slot.tokens.end(), fork.tokens.begin(), fork.tokens.end());
  slot.ahead.clear();
}

void Drafter::AddDrawn(SequenceSlotId id, int32_t position, std::span<const TokenId> drawn) {
  Slot& slot = SlotOf(id);
  const auto known = static_cast<size_t>(static_cast<int32_t>(slot.tokens.size()) - position);
  if (drawn.size() <= known) return;
  slot.tokens.insert(slot.tokens.end(), drawn.begin() + static_cast<std::ptrdiff_t>(known),
                     drawn.end());
  // The last token stays to be computed, because what follows it is to be proposed.
  const auto last = static_cast<int32_t>(slot.tokens.size()) - 1;
  for (const TokenId token : slot.ahead) {
    if (slot.computed >= last || slot.tokens[static_cast<size_t>(slot.computed)] != token) break;
    ++slot.computed;
  }
  slot.ahead.clear();
}

void Drafter::NoteComputed(SequenceSlotId id, int32_t num_computed) {
  Slot& slot = SlotOf(id);
  slot.num_done =
      std::max(slot.num_done, std::min(num_computed, static_cast<int32_t>(slot.tokens.size())));
  // Blocks are shared once they are whole, and the last one of a prompt may be copied.
  const int32_t shared = std::max(slot.num_done / block_size() * block_size(),
                                  std::min(slot.num_done, slot.num_prompt));
  if (shared > slot.computed) SetTarget(id, std::min(slot.num_done, context_));
}

void Drafter::SetTarget(SequenceSlotId id, int32_t target) {
  std::erase_if(behind_, [id](const Behind& behind) { return behind.slot == id; });
  if (target > SlotOf(id).computed) behind_.push_back({.slot = id, .target = target});
}

void Drafter::EndProposals(SequenceSlotId id, std::span<const TokenId> proposals,
                           size_t num_results) {
  if (num_results == 0) return;
  // The last result's token has not been computed, only what it is drawn from.
  const size_t computed = std::min(proposals.size(), num_results - 1);
  SlotOf(id).ahead.assign(proposals.begin(),
                          proposals.begin() + static_cast<std::ptrdiff_t>(computed));
}

Status Drafter::CatchUp(std::span<Row> rows, const Shared& shared) {
  const auto missing = [this](const Row& row) {
    const Slot& slot = SlotOf(row.slot);
    return slot.num_done + 1 - slot.computed;
  };
  int32_t total = 0;
  for (Row& row : rows) {
    row.wanted = std::min(row.wanted, context_ - SlotOf(row.slot).num_done);
    if (row.wanted > 0) total += missing(row);
  }
  for (const Row& row : rows) {
    if (row.wanted <= 0) continue;
    // Propose computes what is missing of a block. The time for more is that of prompts.
    const bool much = missing(row) > block_size() + 1 || total > max_step_tokens_;
    SetTarget(row.slot, much ? SlotOf(row.slot).num_done : 0);
  }
  for (;;) {
    int32_t room = max_step_tokens_;
    parts_.clear();
    for (const Behind& behind : behind_) {
      Slot& slot = SlotOf(behind.slot);
      const int32_t count = std::min(behind.target - slot.computed, room);
      if (count <= 0) continue;
      parts_.push_back({.slot = behind.slot, .begin = slot.computed, .count = count});
      slot.computed += count;
      room -= count;
    }
    if (parts_.empty()) break;
    RETURN_IF_ERROR(Run(/*proposal=*/-1, {}, shared));
  }
  behind_.clear();
  return Status();
}

Status Drafter::Propose(std::span<Row> rows, std::span<SampleResult> results,
                        const Shared& shared) {
  size_t num_results = 0;
  for (int32_t proposal = 0;; ++proposal) {
    parts_.clear();
    for (const Row& row : rows) {
      if (row.wanted <= proposal) continue;
      Slot& slot = SlotOf(row.slot);
      const int32_t end = slot.num_done + proposal + 1;
      const int32_t count = proposal == 0 ? end - slot.computed : 1;
      parts_.push_back({.slot = row.slot, .begin = end - count, .count = count});
      if (proposal == 0) slot.computed = end;
      results[num_results + parts_.size() - 1].token = 0;
    }
    if (parts_.empty()) return Status();
    RETURN_IF_ERROR(Run(proposal, results.subspan(num_results, parts_.size()), shared));
    for (Row& row : rows) {
      if (row.wanted <= proposal) continue;
      row.results->push_back(static_cast<int32_t>(num_results));
      // A backend that has done its work by now spares the passes behind the end.
      if (results[num_results++].token == kNotDrawn) row.wanted = 0;
    }
  }
}

Status Drafter::Run(int32_t proposal, std::span<SampleResult> results, const Shared& shared) {
  Batch& batch = batches_[num_batches_++ % kDrafterBatches];
  RETURN_IF_ERROR(ops_.Await(*batch.done));
  const int32_t padded_tokens = proposal >= 0 ? PaddedTokens() : 0;
  Pack(proposal, padded_tokens, shared.slots, batch);
  nn::Pass pass = MakePass(batch, shared);
  if (proposal > 0) {
    shared.sampler.FillProposals(pass.token_ids, batch.fills, proposal - 1, shared.stream);
  }
  Tensor logits;
  if (padded_tokens > 0) {
    logits = graph_runner_.Decode(pass).Rows(0, static_cast<int64_t>(batch.rows.size()));
  } else {
    const Tensor hidden = draft_.Forward(pass);
    if (proposal >= 0) logits = draft_.Logits(pass, hidden);
  }
  if (proposal >= 0) {
    shared.sampler.Propose(logits, batch.rows, proposal, least_logprob_, results, shared.stream);
  }
  ops_.Record(*batch.done, shared.stream);
  return Status();
}

int32_t Drafter::PaddedTokens() const {
  int32_t num_tokens = 0;
  for (const Part& part : parts_) {
    if (part.count > kMaxGraphQueries) return 0;
    num_tokens += part.count;
  }
  return graph_runner_.PaddedTokens(num_tokens);
}

void Drafter::Pack(int32_t proposal, int32_t padded_tokens, const SequenceSlots& slots,
                   Batch& batch) {
  int32_t num_tokens = padded_tokens;
  if (padded_tokens == 0) {
    for (const Part& part : parts_) num_tokens += part.count;
  }
  const auto num_parts = static_cast<int32_t>(parts_.size());
  const int32_t num_seqs = padded_tokens == 0 ? num_parts : padded_tokens;
  layout_.SetCounts(num_tokens, num_seqs, proposal >= 0 ? num_seqs : 0,
                    static_cast<int32_t>(groups_.size()));
  const auto ints = [&batch](int64_t offset) {
    return reinterpret_cast<int32_t*>(batch.staging.data() + offset);
  };
  batch.fills.clear();
  batch.rows.clear();
  const int32_t vocab_size = draft_.spec().vocab_size;
  int32_t t = 0;
  ints(layout_.query_start_loc)[0] = 0;
  for (size_t s = 0; s < parts_.size(); ++s) {
    const Part& part = parts_[s];
    const Slot& slot = SlotOf(part.slot);
    const SequenceSlot& tables = slots[part.slot];
    const int32_t rope_offset =
        has_long_rope_ ? LongRopeOffset(cache_.original_context, tables.long_rope) : 0;
    for (int32_t position = part.begin; position < part.begin + part.count; ++position, ++t) {
      TokenId token = 0;
      if (proposal > 0) {
        batch.fills.push_back({.slot = part.slot, .index = t});
      } else {
        token = slot.tokens[static_cast<size_t>(position)];
      }
      // The other model's vocabulary may be padded with more tokens.
      ints(layout_.token_ids)[t] = token < vocab_size ? token : 0;
      ints(layout_.positions)[t] = rope_offset + position;
    }
    for (size_t g = 0; g < groups_.size(); ++g) {
      auto* const slot_mapping = reinterpret_cast<int64_t*>(
          batch.staging.data() + layout_.SlotMappingOf(static_cast<int32_t>(g)));
      PackSlotMapping(tables.block_tables[static_cast<size_t>(groups_[g])], block_size(),
                      part.begin, part.count, slot_mapping + t - part.count);
    }
    const int32_t end = part.begin + part.count;
    ints(layout_.query_start_loc)[s + 1] = t;
    ints(layout_.seq_lens)[s] = end;
    ints(layout_.table_rows)[s] = part.slot;
    if (proposal < 0) continue;
    ints(layout_.logit_rows)[s] = t - 1;
    batch.rows.push_back({.slot = part.slot, .position = end});
  }
  if (padded_tokens == 0) return;
  PackPadding(layout_, t, num_parts, batch.staging.data());
  // Nobody reads the logits of padding.
  std::fill(ints(layout_.logit_rows) + num_parts, ints(layout_.logit_rows) + num_seqs, 0);
}

nn::Pass Drafter::MakePass(const Batch& batch, const Shared& shared) {
  ops_.CopyToDevice(device_batch_.data(), batch.staging.data(), static_cast<size_t>(layout_.bytes),
                    shared.stream);
  const auto view = [this](int64_t offset, int64_t count) {
    return Tensor(device_batch_.data() + offset, DType::kI32, Shape{count});
  };
  const auto staged = [&batch](int64_t offset, int32_t count) {
    return std::span(reinterpret_cast<const int32_t*>(batch.staging.data() + offset),
                     static_cast<size_t>(count));
  };
  for (size_t g = 0; g < plans_.size(); ++g) {
    plans_[g]->Fill({.query_start_loc = staged(layout_.query_start_loc, layout_.num_seqs + 1),
                     .seq_lens = staged(layout_.seq_lens, layout_.num_seqs),
                     .device_query_start_loc = view(layout_.query_start_loc, layout_.num_seqs + 1),
                     .device_seq_lens = view(layout_.seq_lens, layout_.num_seqs),
                     .table_rows = view(layout_.table_rows, layout_.num_seqs),
                     .block_tables = shared.tables[static_cast<size_t>(groups_[g])]},
                    shared.stream);
    metadata_[g].slot_mapping =
        Tensor(device_batch_.data() + layout_.SlotMappingOf(static_cast<int32_t>(g)), DType::kI64,
               Shape{layout_.num_tokens});
  }
  shared.arena.Reset();
  return {.ops = ops_,
          .stream = shared.stream,
          .arena = shared.arena,
          .token_ids = view(layout_.token_ids, layout_.num_tokens),
          .positions = view(layout_.positions, layout_.num_tokens),
          .groups = metadata_,
          .kv_layers = shared.layers,
          .logit_rows = view(layout_.logit_rows, layout_.num_logits)};
}

}  // namespace tokamak
