#include "runner/drafter.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
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
  const int32_t rows = std::min(shape.max_seqs, shape.max_step_tokens);
  layout.SetCounts(shape.max_step_tokens, rows, rows,
                   static_cast<int32_t>(draft.spec().cache.groups.size()));
  return layout;
}

}  // namespace

int64_t DrafterStagingBytes(const Model& draft, const RunnerShape& shape) {
  return LargestBatch(draft, shape).bytes;
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
      min_probability_(shape.draft_min_probability),
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
  const auto bytes = static_cast<size_t>(DrafterStagingBytes(draft, shape));
  ASSIGN_OR_RETURN(drafter->batch_, ops.Allocate(bytes, MemoryKind::kDevice));
  ASSIGN_OR_RETURN(drafter->staging_, ops.Allocate(bytes, MemoryKind::kHostPinned));
  return drafter;
}

void Drafter::Admit(SequenceSlotId id, const SequenceSlot& admitted, int32_t num_computed) {
  Slot& slot = slots_[static_cast<size_t>(id)];
  slot.tokens = admitted.tokens;
  slot.num_prompt = admitted.num_prompt;
  slot.computed = std::min(num_computed, context_);
  slot.ahead.clear();
}

void Drafter::AddDrawn(const Row& row) {
  Slot& slot = SlotOf(row);
  slot.tokens.insert(slot.tokens.end(), row.drawn.begin(), row.drawn.end());
  // The last token stays to be computed, because what follows it is to be proposed.
  const auto last = static_cast<int32_t>(slot.tokens.size()) - 1;
  for (const TokenId token : slot.ahead) {
    if (slot.computed >= last || slot.tokens[static_cast<size_t>(slot.computed)] != token) break;
    ++slot.computed;
  }
  slot.ahead.clear();
}

int32_t Drafter::Target(const Row& row) {
  const Slot& slot = SlotOf(row);
  if (WantsMore(row)) return row.num_computed + 1;
  // Blocks are shared once they are whole, and the last one of a prompt may be copied.
  const int32_t block_size = cache_.groups[0].block_size;
  const int32_t shared = std::max(row.num_computed / block_size * block_size,
                                  std::min(row.num_computed, slot.num_prompt));
  return shared > slot.computed ? std::min(row.num_computed, context_) : slot.computed;
}

bool Drafter::WantsMore(const Row& row) {
  const auto num_proposals = static_cast<int32_t>(row.proposals->size());
  return !row.drawn.empty() && num_proposals < row.wanted &&
         row.num_computed + num_proposals < context_;
}

Result<double> Drafter::Propose(std::span<Row> rows, const Shared& shared) {
  double seconds = 0;
  for (Row& row : rows) {
    row.proposals->clear();
    AddDrawn(row);
  }
  for (;;) {
    int32_t room = max_step_tokens_;
    parts_.clear();
    for (Row& row : rows) {
      Slot& slot = SlotOf(row);
      const auto num_proposals = static_cast<int32_t>(row.proposals->size());
      const int32_t missing = num_proposals == 0 ? Target(row) - slot.computed
                              : WantsMore(row)   ? 1
                                                 : 0;
      const int32_t count = std::min(missing, room);
      if (count == 0) continue;
      parts_.push_back({&row, count, count == missing && WantsMore(row)});
      room -= count;
    }
    if (parts_.empty()) return seconds;
    const auto start = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(Run(shared));
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    seconds += taken.count() * ShareOfProposals();
  }
}

double Drafter::ShareOfProposals() const {
  int32_t tokens = 0, all = 0;
  for (const Part& part : parts_) {
    all += part.count;
    // Longer parts are prompts, which are computed anyway.
    if (part.proposes && part.count <= cache_.groups[0].block_size) tokens += part.count;
  }
  return static_cast<double>(tokens) / all;
}

Status Drafter::Run(const Shared& shared) {
  Pack(shared.slots);
  nn::Pass pass = MakePass(shared);
  const Tensor hidden = draft_.Forward(pass);
  for (const Part& part : parts_) {
    Slot& slot = SlotOf(*part.row);
    if (!part.row->proposals->empty()) {
      slot.ahead.push_back(part.row->proposals->back());
    } else {
      slot.computed += part.count;
    }
  }
  return layout_.num_logits > 0 ? Draw(pass, hidden, shared) : Status();
}

void Drafter::Pack(const SequenceSlots& slots) {
  int32_t num_tokens = 0, num_logits = 0;
  for (const Part& part : parts_) {
    num_tokens += part.count;
    num_logits += part.proposes ? 1 : 0;
  }
  layout_.SetCounts(num_tokens, static_cast<int32_t>(parts_.size()), num_logits,
                    static_cast<int32_t>(groups_.size()));
  const auto ints = [this](int64_t offset) {
    return reinterpret_cast<int32_t*>(staging_.data() + offset);
  };
  int32_t* const query_start_loc = ints(layout_.query_start_loc);
  int32_t* logit_row = ints(layout_.logit_rows);
  const int32_t vocab_size = draft_.spec().vocab_size;
  int32_t t = 0;
  query_start_loc[0] = 0;
  for (size_t s = 0; s < parts_.size(); ++s) {
    const Part& part = parts_[s];
    const Slot& slot = SlotOf(*part.row);
    const SequenceSlot& tables = slots[part.row->slot];
    const std::vector<TokenId>& proposals = *part.row->proposals;
    const int32_t begin = proposals.empty()
                              ? slot.computed
                              : part.row->num_computed + static_cast<int32_t>(proposals.size());
    const int32_t rope_offset =
        has_long_rope_ ? LongRopeOffset(cache_.original_context, tables.long_rope) : 0;
    for (int32_t i = 0; i < part.count; ++i, ++t) {
      const int32_t position = begin + i;
      const TokenId token =
          proposals.empty() ? slot.tokens[static_cast<size_t>(position)] : proposals.back();
      // The other model's vocabulary may be padded with more tokens.
      ints(layout_.token_ids)[t] = token < vocab_size ? token : 0;
      ints(layout_.positions)[t] = rope_offset + position;
      for (size_t g = 0; g < groups_.size(); ++g) {
        const auto group = static_cast<size_t>(groups_[g]);
        const int32_t block_size = cache_.groups[group].block_size;
        const BlockId block =
            tables.block_tables[group][static_cast<size_t>(position / block_size)];
        reinterpret_cast<int64_t*>(staging_.data() +
                                   layout_.SlotMappingOf(static_cast<int32_t>(g)))[t] =
            int64_t{block} * block_size + position % block_size;
      }
    }
    query_start_loc[s + 1] = t;
    ints(layout_.seq_lens)[s] = begin + part.count;
    ints(layout_.table_rows)[s] = part.row->slot;
    if (part.proposes) *logit_row++ = t - 1;
  }
}

nn::Pass Drafter::MakePass(const Shared& shared) {
  ops_.CopyToDevice(batch_.data(), staging_.data(), static_cast<size_t>(layout_.bytes),
                    shared.stream);
  const auto view = [this](int64_t offset, int64_t count) {
    return Tensor(batch_.data() + offset, DType::kI32, Shape{count});
  };
  const auto staged = [this](int64_t offset, int32_t count) {
    return std::span(reinterpret_cast<const int32_t*>(staging_.data() + offset),
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
        Tensor(batch_.data() + layout_.SlotMappingOf(static_cast<int32_t>(g)), DType::kI64,
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

Status Drafter::Draw(nn::Pass& pass, Tensor hidden, const Shared& shared) {
  proposal_rows_.clear();
  for (const Part& part : parts_) {
    if (!part.proposes) continue;
    const std::vector<TokenId>& earlier = *part.row->proposals;
    const int32_t position = part.row->num_computed + 1 + static_cast<int32_t>(earlier.size());
    proposal_rows_.push_back({.slot = part.row->slot, .position = position, .earlier = earlier});
  }
  proposed_.resize(proposal_rows_.size());
  shared.sampler.Propose(draft_.Logits(pass, hidden), proposal_rows_, min_probability_, proposed_,
                         shared.stream);
  RETURN_IF_ERROR(ops_.Synchronize(shared.stream));
  size_t i = 0;
  for (const Part& part : parts_) {
    if (!part.proposes) continue;
    const TokenId token = proposed_[i++];
    if (token == kNotDrawn) {
      part.row->wanted = static_cast<int32_t>(part.row->proposals->size());
    } else {
      part.row->proposals->push_back(token);
    }
  }
  return Status();
}

}  // namespace tokamak
