#include "engine/engine_core.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"

namespace tokamak {
namespace {

// Far above any machine; sums of a few of these fit 32 bits.
constexpr int32_t kMaxGroups = 64;
constexpr int32_t kMaxBlockSize = 1 << 16;
constexpr int32_t kMaxPositions = 1 << 26;
constexpr int32_t kMaxBlocks = 1 << 26;
constexpr int32_t kMaxSlots = 1 << 20;

Status CheckCache(const CacheSpec& cache) {
  if (cache.groups.empty() || cache.groups.size() > kMaxGroups) {
    return InvalidArgument("cache.groups: their number must be in [1, {}], got {}", kMaxGroups,
                           cache.groups.size());
  }
  for (const CacheGroup& group : cache.groups) {
    if (group.block_size < 1 || group.block_size > kMaxBlockSize ||
        group.block_size != cache.groups[0].block_size) {
      return InvalidArgument(
          "cache.groups: block sizes must be equal and in [1, {}], got {} and {}", kMaxBlockSize,
          cache.groups[0].block_size, group.block_size);
    }
    if (group.kind == CacheGroupKind::kWindow && group.window < 1) {
      return InvalidArgument("cache.groups: window must be positive, got {}", group.window);
    }
  }
  if (cache.num_device_blocks < 1 || cache.num_device_blocks > kMaxBlocks ||
      cache.num_host_blocks < 0 || cache.num_host_blocks > kMaxBlocks) {
    return InvalidArgument(
        "cache: the numbers of blocks must be at most {}, and at least 1 on the device; got {} "
        "there and {} on the host",
        kMaxBlocks, cache.num_device_blocks, cache.num_host_blocks);
  }
  if (cache.original_context < 0 || cache.original_context > kMaxPositions) {
    return InvalidArgument("cache.original_context: must be in [0, {}], got {}", kMaxPositions,
                           cache.original_context);
  }
  return Status();
}

Status CheckLimits(const EngineCoreOptions& options, const ExecutorLimits& limits) {
  RETURN_IF_ERROR(CheckCache(limits.cache));
  if (limits.max_seqs > kMaxSlots || limits.max_step_tokens > kMaxPositions ||
      limits.max_context < 1 || limits.max_context > kMaxPositions) {
    return InvalidArgument(
        "the executor's limits are implausible: {} sequences, {} tokens per step, context {}",
        limits.max_seqs, limits.max_step_tokens, limits.max_context);
  }
  if (limits.depth < 1) return InvalidArgument("depth: must be positive, got {}", limits.depth);
  if (limits.stages < 1) return InvalidArgument("stages: must be positive, got {}", limits.stages);
  if (options.max_seqs < 1 || options.max_seqs > limits.max_seqs) {
    return InvalidArgument("max_seqs: must be in [1, {}], got {}", limits.max_seqs,
                           options.max_seqs);
  }
  if (options.max_step_tokens < 2 || options.max_step_tokens > limits.max_step_tokens) {
    return InvalidArgument("max_step_tokens: must be in [2, {}], got {}", limits.max_step_tokens,
                           options.max_step_tokens);
  }
  if (options.max_step_tokens / 2 < limits.whole_image_rows) {
    return InvalidArgument(
        "max_step_tokens: must be at least {}, twice the {} tokens of an image, which a step "
        "computes together; got {}",
        2 * int64_t{limits.whole_image_rows}, limits.whole_image_rows, options.max_step_tokens);
  }
  if (options.max_context < 0 || options.max_context > limits.max_context) {
    return InvalidArgument("max_context: must be in [0, {}], got {}", limits.max_context,
                           options.max_context);
  }
  if (options.max_queue < 1) {
    return InvalidArgument("max_queue: must be positive, got {}", options.max_queue);
  }
  if (options.max_failures < 1) {
    return InvalidArgument("max_failures: must be positive, got {}", options.max_failures);
  }
  if (options.quantum < 1) {
    return InvalidArgument("quantum: must be positive, got {}", options.quantum);
  }
  if (!(options.target_itl_ms >= 0)) {
    return InvalidArgument("target_itl_ms: must not be negative, got {}", options.target_itl_ms);
  }
  return Status();
}

SchedulerOptions MakeSchedulerOptions(const EngineCoreOptions& options,
                                      const ExecutorLimits& limits) {
  return {.max_seqs = options.max_seqs,
          .max_step_tokens = options.max_step_tokens,
          .target_seconds = options.target_itl_ms / 1e3 / limits.stages,
          .min_chunk = limits.cache.groups[0].block_size,
          .original_context = limits.cache.original_context,
          .sequence_state = limits.cache.sequence_state,
          .whole_image_rows = limits.whole_image_rows,
          .quantum = options.quantum,
          .drafts = options.drafts,
          .max_step_drafts = limits.max_step_drafts,
          .depth = limits.depth,
          .stages = limits.stages};
}

// The token ids that end a generation: the request's own and, unless it ignores them, the model's.
// Sorted, without duplicates.
std::vector<TokenId> EndIds(const Arrival& arrival) {
  std::vector<TokenId> ids = arrival.sampling.stop_token_ids;
  if (!arrival.sampling.ignore_eos) {
    ids.insert(ids.end(), arrival.eos_ids.begin(), arrival.eos_ids.end());
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

bool IsConstrained(const SamplingParams& sampling) {
  return sampling.structured_output || sampling.thinking_token_budget;
}

// Refuses a request that leaves no token to draw from the first position on. `end_ids` is sorted.
Status CheckAllowed(const SamplingParams& sampling, const std::vector<TokenId>& end_ids) {
  const std::vector<TokenId>& allowed = sampling.allowed_token_ids;
  if (allowed.empty()) return Status();
  const auto is_end = [&](TokenId id) {
    return std::binary_search(end_ids.begin(), end_ids.end(), id);
  };
  if (sampling.min_tokens > 0 && std::all_of(allowed.begin(), allowed.end(), is_end)) {
    return InvalidArgument(
        "min_tokens: {} leaves no token to generate, because all of "
        "allowed_token_ids end the answer",
        sampling.min_tokens);
  }
  const auto is_bad = [&](TokenId id) {
    return std::find(sampling.bad_words_ids.begin(), sampling.bad_words_ids.end(),
                     std::vector<TokenId>{id}) != sampling.bad_words_ids.end();
  };
  if (!sampling.bad_words_ids.empty() && std::all_of(allowed.begin(), allowed.end(), is_bad)) {
    return InvalidArgument("bad_words: forbid all of allowed_token_ids");
  }
  return Status();
}

}  // namespace

Result<std::unique_ptr<EngineCore>> EngineCore::Create(EngineCoreOptions options, Clock* clock,
                                                       Executor* executor, ThreadPool* pool) {
  RETURN_IF_ERROR(CheckLimits(options, executor->limits()));
  if (options.max_context == 0) options.max_context = executor->limits().max_context;
  // A state is neither kept for other sequences nor taken back behind refused drafts.
  if (executor->limits().cache.sequence_state) {
    options.prefix_cache = false;
    options.drafts = {};
  }
  return std::unique_ptr<EngineCore>(new EngineCore(std::move(options), clock, executor, pool));
}

EngineCore::EngineCore(EngineCoreOptions options, Clock* clock, Executor* executor,
                       ThreadPool* pool)
    : options_(std::move(options)),
      limits_(executor->limits()),
      clock_(clock),
      executor_(executor),
      pool_(pool),
      blocks_(limits_.cache, options_.prefix_cache),
      encoder_(limits_.max_encoder_rows, limits_.max_step_image_rows),
      scheduler_(MakeSchedulerOptions(options_, limits_), &blocks_, &encoder_, &costs_,
                 &step_times_),
      queued_(options_.max_queue) {
  max_length_ = LongestOf(1);
  counters_.total_blocks = limits_.cache.num_device_blocks;
  published_ = counters_;
}

EngineCore::~EngineCore() = default;

// Arrivals and cancellations.

int32_t EngineCore::LongestOf(int32_t num_sequences) const {
  int32_t longest = 1, beyond = options_.max_context + 1;
  while (beyond - longest > 1) {
    const int32_t middle = longest + (beyond - longest) / 2;
    // The last token has no cache entry.
    const int64_t needed = int64_t{blocks_.BlocksFor(middle - 1, 1)} * num_sequences;
    (needed <= blocks_.num_blocks() ? longest : beyond) = middle;
  }
  return longest;
}

int32_t EngineCore::MaxLength(const Arrival& arrival) const {
  const int64_t prompt = static_cast<int64_t>(arrival.prompt.size());
  const int64_t context = options_.max_context;
  // Without max_tokens a request may use the rest of the context. Check refuses it if not even one
  // token fits.
  if (!arrival.sampling.max_tokens) {
    const auto& beams = arrival.sampling.beam_search;
    const int32_t longest = beams ? LongestOf(beams->width) : max_length_;
    return static_cast<int32_t>(std::min(context, std::max<int64_t>(prompt + 1, longest)));
  }
  return static_cast<int32_t>(std::min(prompt + *arrival.sampling.max_tokens, context));
}

Status EngineCore::CheckHealth() const {
  const Status status = health();
  return status.ok() ? status : Unavailable("the engine has failed: {}", status.message());
}

Status EngineCore::Check(const Arrival& arrival) const {
  RETURN_IF_ERROR(CheckHealth());
  if (arrival.prompt.empty()) return InvalidArgument("prompt: must have at least one token");
  // The executor gives as many alternatives as there are; the policy is its caller's.
  RETURN_IF_ERROR(Validate(arrival.sampling, limits_.vocab_size, INT32_MAX));
  for (size_t i = 0; i < arrival.prompt.size(); ++i) {
    if (arrival.prompt[i] < 0 || arrival.prompt[i] >= limits_.vocab_size) {
      return InvalidArgument("prompt[{}]: token id {} is not in [0, {})", i, arrival.prompt[i],
                             limits_.vocab_size);
    }
  }
  RETURN_IF_ERROR(CheckImages(arrival));
  const std::vector<TokenId> end_ids = EndIds(arrival);
  const auto num_ends = std::count_if(end_ids.begin(), end_ids.end(), [this](TokenId id) {
    return id >= 0 && id < limits_.vocab_size;
  });
  if (arrival.sampling.min_tokens > 0 && num_ends == limits_.vocab_size) {
    return InvalidArgument(
        "min_tokens: {} leaves no token to generate, because all {} tokens of the vocabulary are "
        "in stop_token_ids or end the model's answers; set it to 0, or give fewer stop_token_ids",
        arrival.sampling.min_tokens, limits_.vocab_size);
  }
  RETURN_IF_ERROR(CheckAllowed(arrival.sampling, end_ids));
  const size_t num_decoders = arrival.decoders.size();
  if (num_decoders != 0 && num_decoders != static_cast<size_t>(arrival.sampling.n)) {
    return InvalidArgument("decoders: must be {} (n) or none, got {}", arrival.sampling.n,
                           num_decoders);
  }
  const size_t num_constraints = IsConstrained(arrival.sampling) ? arrival.sampling.n : 0;
  if (arrival.constraints.size() != num_constraints) {
    return InvalidArgument(
        "{}: needs {} constraints, got {}",
        arrival.sampling.structured_output ? "structured_output" : "thinking_token_budget",
        num_constraints, arrival.constraints.size());
  }
  const bool prompt_only = arrival.sampling.max_tokens == 0;
  const size_t least = arrival.prompt.size() + (prompt_only ? 0 : 1);
  if (least > static_cast<size_t>(options_.max_context)) {
    return ResourceExhausted(
        "prompt: its {} tokens and one to generate do not fit the context of {} tokens",
        arrival.prompt.size(), options_.max_context);
  }
  const int32_t max_length = MaxLength(arrival);
  // The last generated token has no cache entry.
  const int32_t positions = prompt_only ? max_length : max_length - 1;
  const int32_t needed = BlocksNeeded(arrival, positions);
  if (needed > blocks_.num_blocks()) {
    return ResourceExhausted(
        "max_tokens: a prompt of {} tokens and up to {} more need {} KV blocks of {} positions, "
        "but there are {}; ask for fewer tokens, or give the KV cache more memory",
        arrival.prompt.size(), max_length - static_cast<int32_t>(arrival.prompt.size()), needed,
        limits_.cache.groups[0].block_size, blocks_.num_blocks());
  }
  return arrival.sampling.beam_search ? CheckBeams(arrival, positions) : Status();
}

Status EngineCore::Submit(Arrival arrival) {
  RETURN_IF_ERROR(Check(arrival));
  return SubmitChecked(std::move(arrival));
}

Status EngineCore::SubmitChecked(Arrival arrival) {
  CHECK(!arrival.prompt.empty() && arrival.sampling.n > 0);
  CHECK(IsConstrained(arrival.sampling) == !arrival.constraints.empty());
  RETURN_IF_ERROR(CheckHealth());
  const auto same_id = [&](const Arrival& other) { return other.id == arrival.id; };
  if (requests_.contains(arrival.id) || std::any_of(arrivals_.begin(), arrivals_.end(), same_id)) {
    return InvalidArgument("id: request {} has not ended yet", arrival.id);
  }
  if (!queued_.MayTake(arrival.client)) {
    return Unavailable("{} requests are waiting already; try again later", queued_.total());
  }
  queued_.Take(arrival.client);
  arrivals_.push_back(std::move(arrival));
  return Status();
}

void EngineCore::Cancel(RequestId request) { cancels_.push_back(request); }

void EngineCore::CancelAll() {
  for (const auto& [id, request] : requests_) cancels_.push_back(id);
  for (const Arrival& arrival : arrivals_) cancels_.push_back(arrival.id);
}

void EngineCore::Pause(RequestId request) { pauses_.emplace_back(request, true); }

void EngineCore::Resume(RequestId request) { pauses_.emplace_back(request, false); }

void EngineCore::AdmitArrivals() {
  for (Arrival& arrival : std::exchange(arrivals_, {})) Admit(std::move(arrival));
}

void EngineCore::Admit(Arrival arrival) {
  auto request = std::make_unique<RequestState>();
  request->id = arrival.id;
  request->number = num_arrivals_++;
  request->priority = arrival.priority;
  request->client = std::move(arrival.client);
  request->cache_root = std::move(arrival.cache_root);
  request->label = std::move(arrival.label);
  request->speculate = arrival.speculate && !arrival.sampling.beam_search;
  if (arrival.on_output) {
    request->on_output = std::make_shared<const OutputCallback>(std::move(arrival.on_output));
  }
  request->usage.prompt_tokens = static_cast<int32_t>(arrival.prompt.size());
  request->arrived = arrival.submitted == TimePoint{} ? now_ : std::min(arrival.submitted, now_);
  const int32_t n = arrival.sampling.beam_search ? 1 : arrival.sampling.n;
  for (int32_t choice = 0; choice < n; ++choice) {
    auto sequence = std::make_unique<Sequence>();
    sequence->request = request.get();
    sequence->choice = choice;
    sequence->gated = choice > 0 && !limits_.cache.sequence_state;  // else nothing is shared
    sequence->content = PromptContent(arrival);
    sequence->num_prompt = sequence->known();
    sequence->max_length = MaxLength(arrival);
    sequence->wants_prompt_logprobs = choice == 0 && arrival.sampling.prompt_logprobs.has_value();
    if (!arrival.sampling.beam_search) {
      if (!arrival.decoders.empty()) sequence->decoder = std::move(arrival.decoders[choice]);
      if (!arrival.constraints.empty()) {
        sequence->constraint = std::move(arrival.constraints[choice]);
      }
    }
    request->choices.push_back(std::move(sequence));
  }
  request->num_unfinished = n;
  AddImages(&arrival, request.get());
  request->has_form = arrival.sampling.structured_output.has_value();
  if (request->has_form) request->eos_ids = arrival.eos_ids;
  std::vector<TokenId> end_ids = EndIds(arrival);
  if (arrival.sampling.beam_search) {
    AddBeams(&arrival, end_ids.size(), request->choices[0].get());
  }
  request->sampling = std::move(arrival.sampling);
  if (!request->sampling.seed) {
    request->sampling.seed = Hash64(&request->number, sizeof(request->number), options_.seed);
  }
  request->sampling.stop_token_ids = std::move(end_ids);
  request->sampling.stop.clear();
  request->sampling.bad_words.clear();
  request->sampling.dry_sequence_breakers.clear();
  request->sampling.shown_special_tokens.clear();
  request->sampling.structured_output.reset();
  request->sampling.thinking.reset();
  RequestState* const state = request.get();
  requests_.emplace(state->id, std::move(request));
  counters_.prompt_tokens += state->usage.prompt_tokens;
  for (const auto& sequence : state->choices) scheduler_.Add(sequence.get());
  for (const auto& sequence : state->choices) {
    const bool to_compute = !sequence->prompt_only() || sequence->prompt_logprobs_missing();
    if (!to_compute) Finish(sequence.get(), FinishReason::kLength, Status(), {});
  }
  EraseIfEnded(state);
}

void EngineCore::DropCancelled() {
  for (const RequestId id : std::exchange(cancels_, {})) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) continue;
    EndRequest(found->second.get(), FinishReason::kCancelled, Status());
    EraseIfEnded(found->second.get());
  }
}

void EngineCore::PauseAndResume() {
  for (const auto& [id, pause] : std::exchange(pauses_, {})) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) continue;
    RequestState& request = *found->second;
    if (request.num_unfinished == 0 || request.paused == pause) continue;
    request.paused = pause;
    pause ? ++num_paused_ : --num_paused_;
    for (const auto& sequence : request.choices) {
      if (sequence->state == SequenceState::kFinished) continue;
      sequence->last_token.reset();  // the pause must not count as a latency
      pause ? scheduler_.Pause(sequence.get()) : scheduler_.Resume(sequence.get());
    }
  }
}

bool EngineCore::Idle() const { return requests_.size() == num_paused_ && in_flight_.empty(); }

bool EngineCore::HasWork() const {
  const bool must_reset = needs_reset_ && health().ok();
  return !arrivals_.empty() || !cancels_.empty() || !pauses_.empty() || !Idle() || must_reset;
}

// One step.

void EngineCore::Step() {
  now_ = clock_->Now();
  blocks_.SetTime(now_);
  // The core was idle until now; stats must not take that time for being stuck.
  if (Idle() && !needs_reset_) last_progress_ = now_;
  AdmitArrivals();
  DropCancelled();
  PauseAndResume();
  DeliverOutputs();
  RetireDone();
  if (RecoverExecutor()) {
    const bool submitted = SubmitNext();
    DeliverOutputs();  // while the step is computed
    const bool full = in_flight_.size() >= static_cast<size_t>(limits_.depth);
    if (full || !submitted) {
      RetireOldest();
      if (in_flight_.empty() && limits_.depth > 1 && !needs_reset_) SubmitNext();
    }
  }
  DeliverOutputs();
  Publish();
}

bool EngineCore::SubmitNext() {
  Schedule schedule = scheduler_.Next(/*idle=*/in_flight_.empty());
  if (schedule.rows.empty()) {
    EndUnschedulable();
    return false;
  }
  NoteScheduled(schedule);
  BlockManager::StepWork work;
  StepInput input = Pack(schedule, &work);
  // Some executors compute the step while it is submitted.
  in_flight_.push_back({next_step_, std::move(schedule.rows), std::move(work.pins), schedule.cost,
                        /*submitted=*/clock_->Now()});
  if (in_flight_.size() == 1) {
    scheduler_.ObserveGap(ToSeconds(in_flight_.back().submitted - last_progress_));
  }
  const bool masked = input.HasMaskedRows();
  Status status = executor_->Submit(std::move(input));
  // Rows without a mask are drawn while the masks of the others are made.
  if (status.ok()) status = executor_->Sample(next_step_);
  if (status.ok() && masked) {
    RetireForMasks();
    if (needs_reset_) return true;
    status = executor_->SampleMasked(next_step_, MakeMasks(in_flight_.back().rows));
  }
  if (!status.ok()) {
    FailSteps(status);
    return true;
  }
  ++next_step_;
  return true;
}

StepInput EngineCore::Pack(const Schedule& schedule, BlockManager::StepWork* work) {
  StepInput input;
  input.number = next_step_;
  input.free = scheduler_.TakeFreedSlots();
  input.free.insert(input.free.end(), schedule.refilled_slots.begin(),
                    schedule.refilled_slots.end());
  input.fork = schedule.forks;
  *work = blocks_.TakeStepWork();
  input.copies = std::move(work->copies);
  PackImages(&input);
  input.rows.reserve(schedule.rows.size());
  for (const ScheduledRow& row : schedule.rows) {
    Sequence& sequence = *row.sequence;
    if (row.admitted) input.admit.push_back(PackAdmission(row));
    const auto beam = static_cast<size_t>(row.beam);
    SequenceBlocks& blocks =
        sequence.beams ? sequence.blocks_at(sequence.beams->beams[beam].place) : sequence.blocks;
    for (size_t g = 0; blocks.num_sent < blocks.size() && g < blocks.block_tables.size(); ++g) {
      const std::vector<BlockId>& table = blocks.block_tables[g];
      input.append.push_back(
          {row.slot, static_cast<int32_t>(g), {table.begin() + blocks.num_sent, table.end()}});
    }
    blocks.num_sent = blocks.size();
    input.rows.push_back({.slot = row.slot,
                          .num_tokens = row.num_tokens,
                          .sample = row.sample,
                          .masked = row.masked,
                          .drafts = row.drafts,
                          .num_proposals = row.num_proposals,
                          .num_candidates = row.num_candidates});
  }
  return input;
}

AdmitSequence EngineCore::PackAdmission(const ScheduledRow& row) const {
  const Sequence& sequence = *row.sequence;
  const RequestState& request = *sequence.request;
  AdmitSequence admit;
  admit.slot = sequence.slot;
  // With beams, what is behind their trunk comes with the forks.
  const size_t size =
      sequence.beams ? static_cast<size_t>(sequence.beams->base) : sequence.content.size();
  admit.tokens.reserve(size);
  for (size_t i = 0; i < size; ++i) {
    const ContentId content = sequence.content[i];
    admit.tokens.push_back(ShowsImage(content) ? request.prompt[i] : static_cast<TokenId>(content));
  }
  admit.num_prompt_tokens = sequence.num_prompt;
  admit.num_computed = row.start;
  admit.sampling = request.sampling;
  if (request.sampling.min_tokens == 0) admit.sampling.stop_token_ids.clear();
  if (!sequence.prompt_logprobs_missing()) admit.sampling.prompt_logprobs.reset();
  admit.choice = sequence.choice;
  admit.long_rope = sequence.beams && sequence.long_rope;
  for (const ArrivalImage& image : request.images) admit.images.push_back(image.span);
  return admit;
}

void EngineCore::NoteScheduled(const Schedule& schedule) {
  ++num_rounds_;
  for (const ScheduledRow& row : schedule.rows) {
    RequestState& request = *row.sequence->request;
    request.idle_rounds = 0;
    if (row.admitted) row.sequence->num_cached = row.start;
    if (std::exchange(request.last_round, num_rounds_) != num_rounds_) ++request.num_steps;
    if (request.scheduled) continue;
    request.scheduled = true;
    request.first_scheduled = now_;
    request.usage.cached_tokens = row.start;
    counters_.cached_prompt_tokens += row.start;
    if (options_.prefix_cache) counters_.queried_prompt_tokens += row.sequence->num_prompt;
    counters_.queue_time.Observe(ToSeconds(now_ - request.arrived));
    queued_.Give(request.client);
  }
}

void EngineCore::EndUnschedulable() {
  // Check accepts only requests that can run alone, so this is a bug. Ends the request instead of
  // spinning.
  if (!in_flight_.empty()) return;
  Sequence* first = scheduler_.first_waiting();
  if (scheduler_.num_running() > 0) first = scheduler_.running().front();
  if (first == nullptr) return;
  RequestState* request = first->request;
  if (++request->idle_rounds < 2) return;  // a preempted sequence may run in the next step
  EndRequest(request, FinishReason::kError,
             Internal("request {} could not be scheduled: {} of {} KV blocks are available",
                      request->id, blocks_.num_available(), blocks_.num_blocks()));
  EraseIfEnded(request);
}

bool EngineCore::RecoverExecutor() {
  if (!needs_reset_) return true;
  Status status = health();
  if (!status.ok()) {  // requests that arrived while the executor was failing
    EndAll(status);
    return false;
  }
  SetRestarting(last_error_.message());  // loading a model again may take minutes
  status = executor_->Reset();
  if (status.ok()) {
    SetRestarting("");
    needs_reset_ = false;
    next_step_ = 0;
    return true;
  }
  if (++num_failures_ < options_.max_failures) return false;
  LogError("executor: {}; the engine gives up after {} failures in a row", status.ToString(),
           num_failures_);
  {
    MutexLock lock(stats_mutex_);
    health_ = status;
  }
  EndAll(status);
  return false;
}

}  // namespace tokamak
