#include "runner/runner.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ops/graph_batch.h"
#include "runner/attention_shapes.h"

namespace tokamak {

namespace {

// Staging memory has room for the tables of this many sequences with the longest cached prefix.
constexpr int64_t kWholeTables = 8;

}  // namespace

StepShape MakeStepShape(const RunnerShape& shape, const nn::CacheLayout& cache) {
  const int32_t max_blocks = (shape.max_context + shape.block_size - 1) / shape.block_size;
  // A row of n tokens begins at most ceil(n / block_size) blocks.
  const int64_t started = shape.max_step_tokens / shape.block_size + shape.max_seqs;
  const int64_t all = int64_t{shape.max_seqs} * max_blocks;
  return {.max_seqs = shape.max_seqs,
          .max_tokens = shape.max_step_tokens,
          .max_drafts = shape.max_step_drafts,
          .max_blocks_per_seq = max_blocks,
          .num_groups = static_cast<int32_t>(cache.groups.size()),
          .max_updates = static_cast<int32_t>(std::min(all, started + kWholeTables * max_blocks)),
          .max_image_tokens = shape.max_encoder_rows > 0 ? shape.max_step_tokens : 0,
          .rope_dimensions = shape.max_encoder_rows > 0 ? cache.rope_dimensions : 1,
          .bidirectional_images = shape.max_encoder_rows > 0 && cache.bidirectional_images};
}

Runner::Runner(const Model& model, Ops& ops, const RunnerShape& shape, const nn::CacheLayout& cache,
               KvPool pool, bool proposes)
    : model_(model),
      ops_(ops),
      shape_(shape),
      pool_(std::move(pool)),
      step_shape_(MakeStepShape(shape, cache)),
      stream_(ops.MakeStream()),
      slots_({.max_seqs = shape.max_seqs,
              .max_step_tokens = shape.max_step_tokens,
              .max_step_drafts = shape.max_step_drafts,
              .max_step_proposals = proposes ? shape.max_step_drafts : 0,
              .max_context = shape.max_context,
              .vocab_size = model.spec().vocab_size,
              .max_encoder_rows = shape.max_encoder_rows,
              .max_step_image_rows = shape.max_step_image_rows,
              .mrope = step_shape_.rope_dimensions > 1,
              .whole_images = step_shape_.bidirectional_images},
             pool_.spec()),
      steps_in_flight_(static_cast<size_t>(shape.depth)) {}

Runner::~Runner() {
  // Work in flight reads memory that is about to be freed.
  (void)ops_.Synchronize(*stream_);
}

Result<std::unique_ptr<Runner>> Runner::Create(const Model& model, Ops& ops,
                                               const RunnerShape& shape, const RunnerMemory& memory,
                                               const Model* draft) {
  if (shape.max_seqs < 1 || shape.max_step_tokens < 1 || shape.max_context < 1 ||
      shape.block_size < 1 || shape.depth < 1 || memory.num_device_blocks < 1) {
    return InvalidArgument(
        "a runner needs at least one slot, step token, position, block and step in flight");
  }
  JoinedCache joined = JoinCaches(model.spec().cache, draft ? &draft->spec().cache : nullptr);
  ASSIGN_OR_RETURN(KvPool pool, KvPool::Create(ops, joined.cache,
                                               {.block_size = shape.block_size,
                                                .dtype = shape.kv_dtype,
                                                .num_device_blocks = memory.num_device_blocks,
                                                .num_host_blocks = memory.num_host_blocks}));
  std::unique_ptr<Runner> runner(
      new Runner(model, ops, shape, joined.cache, std::move(pool), /*proposes=*/draft != nullptr));
  RETURN_IF_ERROR(runner->Init(memory, draft, std::move(joined.draft_groups)));
  return runner;
}

Status Runner::Init(const RunnerMemory& memory, const Model* draft,
                    std::vector<int32_t> draft_groups) {
  ASSIGN_OR_RETURN(states_, StatePool::Create(ops_, model_.spec().cache, shape_.max_seqs));
  ASSIGN_OR_RETURN(sampler_,
                   ops_.MakeSampler({.max_seqs = shape_.max_seqs,
                                     .max_rows = std::max(shape_.max_seqs + shape_.max_step_drafts,
                                                          kScoredRowsAtOnce),
                                     .vocab_size = model_.spec().vocab_size,
                                     .synthetic_acceptance = shape_.synthetic_acceptance,
                                     .max_proposals = draft ? shape_.max_step_drafts : 0}));
  ASSIGN_OR_RETURN(Buffer arena,
                   ops_.Allocate(static_cast<size_t>(memory.arena_bytes), MemoryKind::kDevice));
  arena_ = std::make_unique<Arena>(std::move(arena));
  const auto staging_bytes = static_cast<size_t>(step_shape_.StagingBytes());
  ASSIGN_OR_RETURN(batch_, ops_.Allocate(staging_bytes, MemoryKind::kDevice));
  for (StepInFlight& in_flight : steps_in_flight_) {
    ASSIGN_OR_RETURN(in_flight.staging, ops_.Allocate(staging_bytes, MemoryKind::kHostPinned));
    in_flight.Reserve(step_shape_);
    in_flight.done = ops_.MakeEvent();
    if (stage().count > 1) {
      ASSIGN_OR_RETURN(in_flight.sent_draws,
                       ops_.Allocate(in_flight.sampled_results.size() * sizeof(TokenId),
                                     MemoryKind::kHostPinned));
    }
  }
  if (const ModelSpec& spec = model_.spec(); shape_.expert_loads && spec.num_moe_layers > 0) {
    const size_t bytes = static_cast<size_t>(spec.num_moe_layers) *
                         static_cast<size_t>(spec.max_experts + 1) * sizeof(int32_t);
    ASSIGN_OR_RETURN(expert_offsets_, ops_.Allocate(bytes, MemoryKind::kDevice));
    for (StepInFlight& in_flight : steps_in_flight_) {
      ASSIGN_OR_RETURN(in_flight.expert_offsets, ops_.Allocate(bytes, MemoryKind::kHostPinned));
    }
  }
  RETURN_IF_ERROR(MakeGroups());
  RETURN_IF_ERROR(MakeImageRunner());
  if (draft != nullptr) {
    ASSIGN_OR_RETURN(drafter_,
                     Drafter::Create(*draft, ops_, shape_, pool_.spec(), std::move(draft_groups)));
    for (size_t g = 0; g < tables_.size(); ++g) drafter_tables_.push_back(Tables(g));
    for (StepInFlight& in_flight : steps_in_flight_) {
      in_flight.drawn = ops_.MakeEvent();
      in_flight.proposing_begin = ops_.MakeTimedEvent();
      in_flight.proposing_end = ops_.MakeTimedEvent();
    }
  }
  const CudaGraphs graphs = stage().count > 1 ? CudaGraphs::kOff : shape_.cuda_graphs;
  ASSIGN_OR_RETURN(graph_runner_, GraphRunner::Make(graphs, ops_,
                                                    std::min(step_shape_.MaxPaddedSeqs(),
                                                             step_shape_.max_tokens)));
  return CaptureGraphs();
}

Status Runner::CaptureGraphs() {
  if (drafter_) RETURN_IF_ERROR(drafter_->CaptureGraphs(SharedWithDrafter()));
  StepInFlight& in_flight = steps_in_flight_.front();
  for (const int32_t num_tokens : graph_runner_.capture_sizes()) {
    PackRows({}, num_tokens, slots_, pool_.spec(), step_shape_, &in_flight);
    Upload(in_flight);
    nn::Pass pass = MakePass(in_flight);
    RETURN_IF_ERROR(graph_runner_.Capture(model_, pass));
    RETURN_IF_ERROR(ops_.Synchronize(*stream_));  // the next size reuses the step's memory
  }
  return Status();
}

Status Runner::MakeGroups() {
  ASSIGN_OR_RETURN(const std::vector<AttentionShape> shapes,
                   AttentionShapes(model_.spec().cache, shape_));
  for (const AttentionShape& attention : shapes) {
    std::unique_ptr<AttentionPlan> plan;  // null: the group's layers are on other stages
    if (attention.num_heads > 0) {
      ASSIGN_OR_RETURN(plan, ops_.MakeAttentionPlan(attention));
    }
    groups_.push_back({.plan = plan.get(), .slot_mapping = {}});
    plans_.push_back(std::move(plan));
  }
  // A draft model may have groups of its own.
  for (int32_t g = 0; g < step_shape_.num_groups; ++g) {
    ASSIGN_OR_RETURN(
        Buffer table,
        ops_.Allocate(static_cast<size_t>(shape_.max_seqs) *
                          static_cast<size_t>(step_shape_.max_blocks_per_seq) * sizeof(BlockId),
                      MemoryKind::kDevice));
    tables_.push_back(std::move(table));
  }
  return Status();
}

int64_t Runner::bytes() const {
  size_t bytes = arena_->peak() + batch_.size() + expert_offsets_.size();
  bytes += static_cast<size_t>(states_.bytes());
  if (drafter_) bytes += static_cast<size_t>(drafter_->bytes());
  if (image_runner_) bytes += static_cast<size_t>(image_runner_->bytes()) + encoder_cache_.size();
  for (const Buffer& table : tables_) bytes += table.size();
  for (const StepInFlight& in_flight : steps_in_flight_) {
    bytes += in_flight.staging.size() + in_flight.expert_offsets.size();
  }
  return static_cast<int64_t>(bytes) + pool_.spec().num_device_blocks * pool_.spec().block_bytes;
}

Status Runner::Fail(Status status) {
  failed_ = status;
  return status;
}

Status Runner::CheckSubmit(const StepInput& step) const {
  if (step.number != next_submit_) {
    return Internal("got step {}, expected step {}", step.number, next_submit_);
  }
  if (num_sampled_ != next_submit_) {
    return Internal("was submitted before all rows of step {} were sampled", num_sampled_);
  }
  if (next_submit_ - next_wait_ >= steps_in_flight_.size()) {
    return Internal("{} steps are in flight already, the oldest is step {}",
                    steps_in_flight_.size(), next_wait_);
  }
  if (!sampler_->has_candidates() &&
      std::any_of(step.rows.begin(), step.rows.end(),
                  [](const StepRow& row) { return row.num_candidates > 0; })) {
    return Internal("wants candidates, but the {} backend returns none", ops_.name());
  }
  return Status();
}

Status Runner::Submit(StepInput step) {
  RETURN_IF_ERROR(failed_);
  Status status = CheckSubmit(step);
  if (status.ok() && drafter_) status = EndDrafting();
  if (status.ok()) status = slots_.Apply(step);
  if (status.ok()) status = EncodeImages(step);
  if (status.ok()) status = ReceiveDrawsFor(step);
  if (!status.ok()) return Fail(status.WithContext(fmt::format("step {}", step.number)));
  StepInFlight& in_flight = InFlight(step.number);
  in_flight.number = step.number;
  pool_.Copy(step.copies, *stream_);
  states_.Fork(step.fork, ops_, *stream_);
  for (const AdmitSequence& admit : step.admit) {
    AdmitToSampler(admit.slot);
    if (drafter_) drafter_->Admit(admit.slot, slots_[admit.slot], admit.num_computed);
  }
  for (const ForkSequence& fork : step.fork) {
    AdmitToSampler(fork.slot);
    if (drafter_) drafter_->Fork(fork);
  }
  const int32_t padded_tokens = PaddedTokens(step);
  in_flight.decode = padded_tokens > 0;
  if (status = UploadExcessTables(&in_flight); !status.ok()) {
    return Fail(status.WithContext(fmt::format("step {}", step.number)));
  }
  PackRows(step.rows, padded_tokens, slots_, pool_.spec(), step_shape_, &in_flight);
  Upload(in_flight);
  if (!step.rows.empty()) Forward(&in_flight);
  if (expert_offsets_.size() > 0 && !step.rows.empty()) {
    ops_.CopyToHost(in_flight.expert_offsets.data(), expert_offsets_.data(), expert_offsets_.size(),
                    *stream_);
  }
  ++next_submit_;
  return Status();
}

void Runner::AdmitToSampler(SequenceSlotId id) {
  const SequenceSlot& slot = slots_[id];
  sampler_->Admit(id, slot.sampling, slot.choice, slot.tokens, slot.num_prompt, *stream_);
}

int32_t Runner::PaddedTokens(const StepInput& step) const {
  int32_t num_tokens = 0;
  for (const StepRow& row : step.rows) {
    const bool draws_from_all = (row.sample || row.num_candidates > 0) &&
                                row.num_tokens == static_cast<int32_t>(row.drafts.size()) + 1;
    const SequenceSlot& slot = slots_[row.slot];
    if (!draws_from_all || row.num_tokens > kMaxGraphQueries || slot.sampling.prompt_logprobs ||
        slot.ShowsImage(slot.num_computed - row.num_tokens, slot.num_computed)) {
      return 0;
    }
    num_tokens += row.num_tokens;
  }
  return num_tokens == 0 ? 0 : graph_runner_.PaddedTokens(num_tokens);
}

// Needed only if a step admits many sequences with long cached prefixes. Waits, because it reuses
// the staging memory.
Status Runner::UploadExcessTables(StepInFlight* in_flight) {
  const auto room = static_cast<size_t>(step_shape_.max_updates);
  for (int32_t g = 0; g < step_shape_.num_groups; ++g) {
    std::span<const SequenceSlots::TableUpdate> updates = slots_.table_updates(g);
    while (updates.size() > room) {
      const size_t count = std::min(room, updates.size() - room);
      PackUpdates(g, updates.first(count), step_shape_, in_flight);
      Upload(*in_flight);
      RETURN_IF_ERROR(ops_.Synchronize(*stream_));
      updates = updates.subspan(count);
    }
  }
  return Status();
}

void Runner::Upload(const StepInFlight& in_flight) {
  const BatchLayout& layout = in_flight.layout;
  if (layout.num_tokens == 0 && layout.no_updates()) return;
  ops_.CopyToDevice(batch_.data(), in_flight.staging.data(), static_cast<size_t>(layout.bytes),
                    *stream_);
  for (size_t g = 0; g < tables_.size(); ++g) {
    const BatchLayout::Updates& updates = layout.updates[g];
    if (updates.count == 0) continue;
    const auto view = [&](int64_t offset) {
      return Tensor(batch_.data() + offset, DType::kI32, Shape{updates.count});
    };
    ops_.Run(
        ScatterElements{
            .indices = view(updates.indices), .values = view(updates.values), .out = Tables(g)},
        *stream_);
  }
}

Tensor Runner::Tables(size_t group) const {
  return Tensor(tables_[group].data(), DType::kI32,
                Shape{shape_.max_seqs, step_shape_.max_blocks_per_seq});
}

nn::Pass Runner::MakePass(const StepInFlight& in_flight) {
  const BatchLayout& layout = in_flight.layout;
  const auto view = [this](int64_t offset, int64_t count) {
    return Tensor(batch_.data() + offset, DType::kI32, Shape{count});
  };
  const StateBatch sequences = {
      .query_start_loc = in_flight.Staged(layout.query_start_loc, layout.num_seqs + 1),
      .seq_lens = in_flight.Staged(layout.seq_lens, layout.num_seqs),
      .device_query_start_loc = view(layout.query_start_loc, layout.num_seqs + 1),
      .device_seq_lens = view(layout.seq_lens, layout.num_seqs),
      .slots = view(layout.table_rows, layout.num_seqs)};
  for (size_t g = 0; g < plans_.size(); ++g) {
    if (plans_[g] == nullptr) continue;
    plans_[g]->Fill({.query_start_loc = sequences.query_start_loc,
                     .seq_lens = sequences.seq_lens,
                     .device_query_start_loc = sequences.device_query_start_loc,
                     .device_seq_lens = sequences.device_seq_lens,
                     .table_rows = sequences.slots,
                     .block_tables = Tables(g),
                     .bidirectional = in_flight.bidirectional},
                    *stream_);
    groups_[g].slot_mapping = Tensor(batch_.data() + layout.SlotMappingOf(static_cast<int32_t>(g)),
                                     DType::kI64, Shape{layout.num_tokens});
  }
  arena_->Reset();
  return {.ops = ops_,
          .stream = *stream_,
          .arena = *arena_,
          .token_ids = view(layout.token_ids, layout.num_tokens),
          .positions = view(layout.positions, layout.num_tokens),
          .rope_positions = Tensor(batch_.data() + layout.rope_positions, DType::kI32,
                                   {layout.rope_dimensions, layout.num_tokens}),
          .token_indices = view(layout.token_indices, layout.num_tokens),
          .groups = groups_,
          .kv_layers = pool_.layers().first(model_.spec().cache.layers.size()),
          .state_layers = states_.layers(),
          .states = sequences,
          .logit_rows = view(layout.logit_rows, layout.num_logits),
          .image_rows = EncoderCache(),
          .image_from = view(layout.image_from, layout.num_image_tokens),
          .image_to = view(layout.image_to, layout.num_image_tokens),
          .expert_offsets = ExpertOffsets(expert_offsets_)};
}

void Runner::Forward(StepInFlight* in_flight) {
  nn::Pass pass = MakePass(*in_flight);
  if (!stage().first()) ReceiveHidden(pass);
  if (!stage().last()) return SendHidden(model_.Forward(pass));
  sampler_->FillTokens(pass.token_ids, in_flight->fills, *stream_);
  const auto num_draws = static_cast<int64_t>(in_flight->num_draws);
  const bool greedy = IsGreedy(*in_flight);
  in_flight->argmax.reset();
  if (in_flight->decode && !greedy) {
    in_flight->logits = graph_runner_.Decode(pass).Rows(0, num_draws);
    return;
  }
  const Tensor hidden = model_.Forward(pass);
  ScorePrompt(pass, hidden, in_flight);
  if (num_draws == 0) return;
  const Tensor sampled = hidden.Rows(0, num_draws);
  if (greedy) in_flight->argmax = model_.Argmax(pass, sampled);
  if (!in_flight->argmax) in_flight->logits = model_.Logits(pass, sampled);
}

bool Runner::IsGreedy(const StepInFlight& in_flight) const {
  return in_flight.num_unmasked > 0 && in_flight.num_unmasked == in_flight.sample_rows.size() &&
         std::all_of(in_flight.sample_rows.begin(), in_flight.sample_rows.end(),
                     [this](const SampleRow& row) { return sampler_->IsGreedy(row); });
}

void Runner::ScorePrompt(nn::Pass& pass, Tensor hidden, StepInFlight* in_flight) {
  const auto first = static_cast<int64_t>(in_flight->num_draws);
  for (const StepInFlight::Row& row : in_flight->rows) {
    for (int32_t begin = row.scored_begin; begin < row.scored_end; begin += kScoredRowsAtOnce) {
      const int32_t end = std::min(begin + kScoredRowsAtOnce, row.scored_end);
      const auto count = static_cast<size_t>(end - begin);
      ArenaScope scope(pass.arena);
      const Tensor logits = model_.Logits(pass, hidden.Rows(first + begin, first + end));
      sampler_->Score(
          logits, std::span(in_flight->scored_tokens).subspan(static_cast<size_t>(begin), count),
          row.prompt_top,
          std::span(in_flight->scored_results).subspan(static_cast<size_t>(begin), count),
          *stream_);
    }
  }
}

Status Runner::Sample(uint64_t number) {
  RETURN_IF_ERROR(failed_);
  if (number != next_sample_ || number >= next_submit_) {
    return Fail(
        Internal("step {}: Sample was called, but step {} is the next to sample, and {} steps are "
                 "submitted",
                 number, next_sample_, next_submit_));
  }
  ++next_sample_;
  StepInFlight& in_flight = InFlight(number);
  if (!stage().last()) return EndSampling(&in_flight);
  const std::span rows = std::span(in_flight.sample_rows).first(in_flight.num_unmasked);
  const std::span results =
      std::span(in_flight.sampled_results).first(in_flight.num_unmasked_draws);
  if (in_flight.argmax) {
    sampler_->SampleGreedy(*in_flight.argmax, rows, results, *stream_);
  } else if (!rows.empty()) {
    const Tensor logits = in_flight.logits.Rows(0, static_cast<int64_t>(results.size()));
    sampler_->Sample(logits, rows, {}, results, *stream_);
  }
  if (rows.size() < in_flight.sample_rows.size()) return Status();
  return EndSampling(&in_flight);
}

Status Runner::SampleMasked(uint64_t number, std::vector<TokenMask> masks) {
  RETURN_IF_ERROR(failed_);
  if (number != num_sampled_ || number >= next_sample_) {
    return Fail(
        Internal("step {}: SampleMasked was called, but its masked rows are not next", number));
  }
  StepInFlight& in_flight = InFlight(number);
  if (Status status = CheckMasks(in_flight, masks); !status.ok()) {
    return Fail(status.WithContext(fmt::format("step {}", number)));
  }
  in_flight.masks = std::move(masks);
  const size_t first = in_flight.num_unmasked_draws;
  const std::span rows = std::span(in_flight.sample_rows).subspan(in_flight.num_unmasked);
  const std::span results =
      std::span(in_flight.sampled_results).subspan(first, in_flight.num_draws - first);
  const Tensor logits =
      in_flight.logits.Rows(static_cast<int64_t>(first), static_cast<int64_t>(in_flight.num_draws));
  sampler_->Sample(logits, rows, in_flight.masks, results, *stream_);
  return EndSampling(&in_flight);
}

Status Runner::CheckMasks(const StepInFlight& in_flight,
                          const std::vector<TokenMask>& masks) const {
  const size_t words = (static_cast<size_t>(vocab_size()) + 31) / 32;
  const std::span rows = std::span(in_flight.sample_rows).subspan(in_flight.num_unmasked);
  for (size_t i = 0; i < masks.size(); ++i) {
    const SequenceSlotId slot = masks[i].slot;
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [slot](const SampleRow& row) { return row.slot == slot; });
    if (row == rows.end()) {
      return Internal("there is a mask for slot {}, which waits for none", slot);
    }
    if (masks[i].draw < 0 || masks[i].draw >= row->num_draws()) {
      return Internal("there is a mask for draw {} of slot {}, which has {}", masks[i].draw, slot,
                      row->num_draws());
    }
    if (masks[i].allowed.size() != words) {
      return Internal("the mask of slot {} has {} words, but the vocabulary needs {}", slot,
                      masks[i].allowed.size(), words);
    }
    for (size_t j = 0; j < i; ++j) {
      if (masks[j].slot != slot || masks[j].draw != masks[i].draw) continue;
      return Internal("there are two masks for draw {} of slot {}", masks[i].draw, slot);
    }
  }
  for (const SampleRow& row : rows) {
    const auto given = std::count_if(masks.begin(), masks.end(), [&row](const TokenMask& mask) {
      return mask.slot == row.slot;
    });
    if (given == 0 || given == row.num_draws()) continue;
    return Internal("slot {} has {} masks for {} draws", row.slot, given, row.num_draws());
  }
  return Status();
}

Status Runner::EndSampling(StepInFlight* in_flight) {
  ++num_sampled_;
  if (!drafter_) {
    ops_.Record(*in_flight->done, *stream_);
    return stage().count > 1 && stage().last() ? SendReadyDraws() : Status();
  }
  if (Status status = Draft(in_flight); !status.ok()) {
    return Fail(status.WithContext(fmt::format("step {}", in_flight->number)));
  }
  return Status();
}

bool Runner::Done(uint64_t number) {
  if (!failed_.ok()) return true;
  if (number >= num_sampled_) return false;
  StepInFlight& in_flight = InFlight(number);
  // Without an error, the draws are still to come.
  if (!stage().last() && number >= next_draws_) return DeviceFailed(in_flight);
  if (in_flight.must_propose) {
    if (!ops_.Reached(*in_flight.drawn)) return false;
    if (Status status = Propose(&in_flight); !status.ok()) {
      (void)Fail(status.WithContext(fmt::format("step {}", number)));
      return true;
    }
  }
  return ops_.Reached(*in_flight.done);
}

Result<StepOutput> Runner::Wait(uint64_t number) {
  RETURN_IF_ERROR(failed_);
  if (number != next_wait_ || number >= num_sampled_) {
    return Fail(
        Internal("step {}: Wait was called, but step {} is the oldest, and {} steps are sampled",
                 number, next_wait_, num_sampled_));
  }
  StepInFlight& in_flight = InFlight(number);
  while (stage().count > 1 && next_draws_ <= number) {
    RETURN_IF_ERROR(stage().last() ? SendDraws() : ReceiveDraws());
  }
  Status status = in_flight.must_propose ? Propose(&in_flight) : Status();
  if (status.ok()) status = ops_.Await(*in_flight.done);
  if (!status.ok()) {
    return Fail(status.WithContext(fmt::format("step {}", number)));
  }
  ++next_wait_;
  StepOutput output = MakeOutput(in_flight);
  for (const RowOutput& row : output.rows) {
    slots_.Settle(row.slot, static_cast<int32_t>(row.tokens.size()));
  }
  if (drafter_) NoteDrawn(in_flight);
  for (size_t i = 0; i < in_flight.rows.size(); ++i) {
    const StepInFlight::Row& row = in_flight.rows[i];
    if (row.num_proposals == 0) continue;
    slots_.EndProposals(row.slot);
    drafter_->EndProposals(row.slot, output.rows[i].proposals, row.proposals.size());
  }
  return output;
}

Tensor Runner::ExpertOffsets(const Buffer& memory) const {
  if (memory.size() == 0) return {};
  const ModelSpec& spec = model_.spec();
  return Tensor(memory.data(), DType::kI32, Shape{spec.num_moe_layers, spec.max_experts + 1});
}

std::vector<int32_t> Runner::ExpertLoads(const StepInFlight& in_flight) const {
  std::vector<int32_t> loads;
  const Tensor offsets = ExpertOffsets(in_flight.expert_offsets);
  if (offsets.empty() || in_flight.rows.empty()) return loads;
  loads.reserve(static_cast<size_t>(offsets.rows() * (offsets.cols() - 1)));
  for (int64_t moe_layer = 0; moe_layer < offsets.rows(); ++moe_layer) {
    const int32_t* ends = offsets.Row<int32_t>(moe_layer);
    for (int64_t e = 0; e + 1 < offsets.cols(); ++e) loads.push_back(ends[e + 1] - ends[e]);
  }
  return loads;
}

StepOutput Runner::MakeOutput(const StepInFlight& in_flight) const {
  StepOutput output{.number = in_flight.number,
                    .rows = {},
                    .expert_loads = ExpertLoads(in_flight),
                    .proposing_seconds = ProposingSeconds(in_flight)};
  output.rows.reserve(in_flight.rows.size());
  for (const StepInFlight::Row& row : in_flight.rows) {
    RowOutput& out = output.rows.emplace_back();
    out.slot = row.slot;
    for (int32_t i = row.scored_begin; i < row.scored_end; ++i) {
      const SampleResult& scored = in_flight.scored_results[static_cast<size_t>(i)];
      if (scored.health != RowHealth::kOk) out.health = scored.health;
      out.prompt_logprobs.push_back(scored.logprobs);
    }
    if (row.num_candidates > 0) {
      const SampleResult& result = in_flight.sampled_results[static_cast<size_t>(row.sampled)];
      if (out.health == RowHealth::kOk) out.health = result.health;
      out.candidates = result.candidates;
    }
    const int32_t num_draws = row.num_candidates > 0 ? 0 : row.num_draws;
    out.tokens.reserve(static_cast<size_t>(num_draws));
    for (int32_t i = 0; i < num_draws; ++i) {
      const int32_t index = row.sampled + i;
      const SampleResult& drawn = in_flight.sampled_results[static_cast<size_t>(index)];
      if (drawn.token == kNotDrawn) break;
      if (out.health == RowHealth::kOk) out.health = drawn.health;
      out.tokens.push_back(drawn.token);
      if (row.wants_logprobs) out.logprobs.push_back(drawn.logprobs);
    }
    for (const int32_t index : row.proposals) {
      const TokenId token = in_flight.proposed[static_cast<size_t>(index)].token;
      if (token == kNotDrawn) break;
      out.proposals.push_back(token);
    }
    if (out.health != RowHealth::kOk) {
      out.tokens.clear();
      out.logprobs.clear();
      out.prompt_logprobs.clear();
      out.proposals.clear();
      out.candidates.clear();
    }
  }
  return output;
}

Status Runner::Reset() {
  const Status status = ops_.Synchronize(*stream_);
  slots_.Clear();
  if (drafter_) drafter_->Reset();
  next_submit_ = next_sample_ = num_sampled_ = next_wait_ = next_draws_ = 0;
  failed_ = status;
  return status;
}

}  // namespace tokamak
