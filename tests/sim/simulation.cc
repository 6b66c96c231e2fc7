#include "sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace tokamak::sim {
namespace {

constexpr int64_t kMaxRounds = 50000;

template <typename T>
bool IsPrefix(const std::vector<T>& part, const std::vector<T>& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

bool IsErrorOf(RowHealth health, const Status& error) {
  const std::string_view message = error.message();
  switch (health) {
    case RowHealth::kOk:
      return false;
    case RowHealth::kNotFinite:
      return error.code() == StatusCode::kInternal &&
             message.starts_with("the model's output is not finite at position ");
    case RowHealth::kNoCandidate:
      return error.code() == StatusCode::kInvalidArgument &&
             (message.starts_with("min_tokens: no token can follow position ") ||
              message.starts_with("structured_output: no token can follow the ") ||
              message.starts_with("thinking_token_budget: no token can follow the "));
  }
  return false;
}

// An executor's error is no fault of the request.
bool IsInjected(const Status& error) {
  const std::string_view message = error.message();
  return (error.code() == StatusCode::kUnavailable || error.code() == StatusCode::kInternal) &&
         (message.find("injected") != message.npos ||
          message.find(" has not finished step ") != message.npos);
}

}  // namespace

void ScheduleStats::Add(const ScheduleStats& other) {
  steps += other.steps;
  rows += other.rows;
  copies += other.copies;
  requests += other.requests;
  structured += other.structured;
  budgets += other.budgets;
  drafts += other.drafts;
  accepted += other.accepted;
  masked += other.masked;
  proposals += other.proposals;
  searches += other.searches;
  forks += other.forks;
  with_images += other.with_images;
  with_state += other.with_state;
  encoded += other.encoded;
  refused += other.refused;
  preemptions += other.preemptions;
  pauses += other.pauses;
  failures += other.failures;
  failed_engines += other.failed_engines;
  with_ranks += other.with_ranks;
  overtaken += other.overtaken;
  restarts += other.restarts;
  cached_tokens += other.cached_tokens;
  tokens += other.tokens;
  for (size_t i = 0; i < unhealthy.size(); ++i) unhealthy[i] += other.unhealthy[i];
}

template <typename... Args>
void Simulation::Fail(const char* format, Args... args) {
  verdict_.Fail("output: " + fmt::format(fmt::runtime(format), args...));
}

Simulation::Simulation(const ScheduleOptions& options)
    : options_(options),
      rng_(options.seed),
      client_rng_(Mix(options.seed, 0xc11e47)),
      stage_rng_(Mix(options.seed, 0x57a6e5)),
      image_rng_(Mix(options.seed, 0x13a9e5)),
      rank_rng_(Mix(options.seed, 0x4a2c5)) {
  clock_.Set(TimePoint(std::chrono::seconds(1)));
  DrawConfiguration();
  executor_ = std::make_unique<FakeExecutor>(executor_options_, rng_.Next(), &clock_, &verdict_);
  if (rank_options_.stage_size > 0) {
    auto ranks = std::make_unique<FakeRanks>(rank_options_, executor_options_, rank_rng_.Next(),
                                             executor_.get(), &clock_, &verdict_);
    ranks_ = ranks.get();
    // Real time must not pass a deadline.
    remote_ = MakeRemoteExecutor(std::move(ranks), executor_->limits(), std::chrono::hours(1));
    remote_->OnLost([this] { lost_heard_ = true; });
  }
  if (options.seed % 8 == 0) pool_ = std::make_unique<ThreadPool>(2);
  if (const Status status = StartCore(); !status.ok()) {
    verdict_.Fail(status.ToString());
    return;
  }
  checker_ = std::make_unique<EngineChecker>(core_.get(), &verdict_, executor_options_.limits.depth,
                                             /*one_client=*/num_clients_ == 1);
  (ranks_ != nullptr ? ranks_->on_submit : executor_->on_submit) = [this](const StepInput& step) {
    checker_->OnSubmit(step);
  };
}

Simulation::~Simulation() = default;

Status Simulation::StartCore() {
  Clock* clock = &clock_;
  Executor* executor = this->executor();
  if (!options_.record_path.empty()) {
    RecordHeader header;
    header.properties = {{"seed", std::to_string(options_.seed)}};
    header.options = core_options_;
    header.limits = executor_->limits();
    ASSIGN_OR_RETURN(writer_, RecordWriter::Create(options_.record_path, header));
    recording_clock_ = std::make_unique<RecordingClock>(clock, writer_.get());
    recording_executor_ = std::make_unique<RecordingExecutor>(executor, writer_.get());
    clock = recording_clock_.get();
    executor = recording_executor_.get();
  }
  ASSIGN_OR_RETURN(core_, EngineCore::Create(core_options_, clock, executor, pool_.get()));
  return Status();
}

// The configuration.

void Simulation::DrawConfiguration() {
  constexpr int32_t kDepths[] = {1, 2, 4};
  ExecutorLimits& limits = executor_options_.limits;
  limits.depth = options_.depth > 0 ? options_.depth : kDepths[rng_.In(0, 2)];
  if (stage_rng_.Chance(40)) {
    limits.stages = stage_rng_.In(2, 4);
    // With fewer steps in flight, stages wait for the engine.
    if (options_.depth == 0 && stage_rng_.Chance(70)) limits.depth = limits.stages + 1;
  }
  limits.vocab_size = executor_options_.model.vocab =
      rng_.Chance(20) ? rng_.In(4, 12) : rng_.In(30, 300);
  limits.max_context = rng_.In(24, 72);
  limits.max_seqs = rng_.Chance(50) ? rng_.In(2, 12) : rng_.In(12, 40);
  limits.max_step_tokens = rng_.Chance(20) ? rng_.In(2, 6) : rng_.In(8, 48);
  max_prompt_ = rng_.In(4, limits.max_context * (rng_.Chance(50) ? 1 : 3) / 3);
  max_generated_ = rng_.In(2, 48);
  core_options_.max_seqs = rng_.In(1, limits.max_seqs);
  DrawCache();
  executor_options_.jitter = rng_.Chance(50) ? 3 * rng_.Unit() : 0;
  if (rng_.Chance(25)) executor_options_.model.unhealthy_every = rng_.In(50, 500);
  if (rng_.Chance(15)) {
    executor_options_.failure_permille = rng_.In(1, 20);
    executor_options_.reset_failure_percent = rng_.In(0, 60);
  }
  core_options_.max_step_tokens = rng_.In(2, limits.max_step_tokens);
  core_options_.max_context = rng_.Chance(20) ? rng_.In(16, limits.max_context) : 0;
  core_options_.max_queue = rng_.In(4, 40);
  core_options_.target_itl_ms = rng_.Chance(40) ? 1 + rng_.Unit() : 0;
  core_options_.prefix_cache = rng_.Chance(80);
  core_options_.seed = rng_.Next();
  num_clients_ = client_rng_.Chance(30) ? 1 : client_rng_.In(2, 8);
  if (options_.clients > 0) num_clients_ = options_.clients;
  core_options_.quantum = client_rng_.In(1, client_rng_.Chance(50) ? 8 : 64);
  pause_permille_ = client_rng_.Chance(50) ? client_rng_.In(1, 200) : 0;
  structured_percent_ = client_rng_.Chance(50) ? client_rng_.In(1, 100) : 0;
  if (client_rng_.Chance(50)) {
    core_options_.drafts.most = client_rng_.In(1, 6);
    if (client_rng_.Chance(30)) {
      core_options_.drafts.least = client_rng_.In(1, core_options_.drafts.most);
    }
    if (client_rng_.Chance(20)) core_options_.drafts.min_probability = 0.5f;
    core_options_.drafts.min_match = client_rng_.In(1, 3);
    core_options_.drafts.max_match = core_options_.drafts.min_match + client_rng_.In(0, 2);
    core_options_.drafts.always = client_rng_.Chance(60);
    limits.max_step_drafts = client_rng_.In(1, 12);
    executor_options_.model.usual = client_rng_.In(0, 3);
    core_options_.drafts.from_model = client_rng_.Chance(40);
  }
  limits.has_candidates = true;
  if (client_rng_.Chance(40)) beam_percent_ = client_rng_.In(1, 100);
  arrival_percent_ = rng_.In(5, 50);
  cancel_permille_ = rng_.Chance(60) ? rng_.In(1, 60) : 0;
  if (image_rng_.Chance(40)) DrawImages();
  if (options_.ranks > 0 || rank_rng_.Chance(25)) DrawRanks();
  for (int i = rng_.In(1, 4); i > 0; --i) {
    Prompt& stem = stems_.emplace_back();
    stem.tokens.resize(rng_.In(1, max_prompt_));
    for (TokenId& token : stem.tokens) token = rng_.In(0, limits.vocab_size - 1);
    AddImages(0, &stem);
  }
}

void Simulation::DrawImages() {
  num_images_ = image_rng_.In(1, 8);
  ExecutorLimits& limits = executor_options_.limits;
  // Some images have more rows, and are refused.
  limits.max_encoder_rows = image_rng_.Chance(90) ? image_rng_.In(7, 30) : image_rng_.In(1, 6);
  limits.max_step_image_rows = image_rng_.Chance(90) ? image_rng_.In(7, 20) : image_rng_.In(1, 6);
  executor_options_.image_row_seconds = 1e-3 * image_rng_.Unit();
  if (image_rng_.Chance(40) && core_options_.max_step_tokens > 1) {
    limits.whole_image_rows = std::min(image_rng_.Chance(80) ? 7 : image_rng_.In(1, 7),
                                       core_options_.max_step_tokens / 2);
  }
}

// Ranks fail in place of the executor.
void Simulation::DrawRanks() {
  rank_options_.stage_size = options_.ranks > 0 ? options_.ranks : rank_rng_.In(1, 3);
  if (rank_rng_.Chance(50)) rank_options_.late_seconds = 0.02 * rank_rng_.Unit();
  if (rank_rng_.Chance(50)) rank_options_.failure_permille = rank_rng_.In(1, 20);
  if (rank_rng_.Chance(50)) rank_options_.restart_failure_percent = rank_rng_.In(0, 60);
  executor_options_.failure_permille = executor_options_.reset_failure_percent = 0;
}

void Simulation::DrawCache() {
  const ExecutorLimits& limits = executor_options_.limits;
  CacheSpec& cache = executor_options_.limits.cache;
  constexpr int32_t kBlockSizes[] = {1, 2, 4, 4, 4, 8, 16};
  const int32_t block_size = kBlockSizes[rng_.In(0, 6)];
  const int32_t num_groups = rng_.Chance(60) ? 1 : rng_.In(2, 3);
  for (int32_t g = 0; g < num_groups; ++g) {
    const bool window = rng_.Chance(g == 0 ? 10 : 70);
    cache.groups.push_back({window ? CacheGroupKind::kWindow : CacheGroupKind::kFull, block_size,
                            window ? rng_.In(1, limits.max_context) : 0});
  }
  // The blocks that all sequences together would need, and the percentage of them that exists.
  const int32_t blocks = (max_prompt_ + max_generated_ + block_size - 1) / block_size;
  const int32_t demand = blocks * num_groups * std::max(3, core_options_.max_seqs);
  const int32_t percent = rng_.Chance(85) ? rng_.In(10, 30) : rng_.In(30, 120);
  cache.num_device_blocks = std::max(2 * num_groups, demand * percent / 100);
  if (rng_.Chance(50)) cache.num_host_blocks = rng_.In(1, demand);
  if (rng_.Chance(30)) cache.original_context = rng_.In(1, limits.max_context - 1);
  cache.sequence_state = Rng(Mix(options_.seed, 0x57a7e)).Chance(15);
}

// The workload.

Simulation::Prompt Simulation::DrawPrompt() {
  const int32_t vocab = executor_options_.limits.vocab_size;
  const Prompt& stem = stems_[rng_.In(0, static_cast<int32_t>(stems_.size()) - 1)];
  const auto size = static_cast<int32_t>(stem.tokens.size());
  Prompt prompt;
  int32_t taken = 0;
  if (rng_.Chance(75)) {
    taken = rng_.Chance(50) ? size : rng_.In(0, size);
    prompt.tokens.assign(stem.tokens.begin(), stem.tokens.begin() + taken);
    for (ImageSpan span : stem.images) {
      const int32_t shown = std::min(span.num_rows, taken - span.position);
      if (shown <= 0 || (MustBeWhole() && shown < span.num_rows)) continue;
      span.num_rows = shown;
      prompt.images.push_back(span);
    }
  }
  const int32_t more = rng_.In(prompt.tokens.empty() ? 1 : 0, rng_.Chance(70) ? 6 : max_prompt_);
  for (int32_t i = 0; i < more; ++i) prompt.tokens.push_back(rng_.In(0, vocab - 1));
  AddImages(taken, &prompt);
  return prompt;
}

void Simulation::AddImages(int32_t begin, Prompt* prompt) {
  const auto size = static_cast<int32_t>(prompt->tokens.size());
  if (num_images_ == 0) return;
  for (int32_t at = begin + image_rng_.In(0, 4); at < size; at += image_rng_.In(0, 6)) {
    const auto id = static_cast<ImageId>(image_rng_.In(1, num_images_));
    const int32_t rows = ImageOf(id).num_rows;
    const int32_t first = !MustBeWhole() && image_rng_.Chance(20) ? image_rng_.In(0, rows - 1) : 0;
    const int32_t shown = std::min(rows - first, size - at);
    if (MustBeWhole() && shown < rows) return;
    prompt->images.push_back({.position = at, .image = id, .first_row = first, .num_rows = shown});
    for (int32_t i = 0; i < shown; ++i) {
      prompt->tokens[at + i] = executor_options_.limits.vocab_size - 1;
    }
    at += shown;
  }
}

void Simulation::DrawEnds(RequestSpec* spec) {
  const int32_t vocab = executor_options_.limits.vocab_size;
  if (rng_.Chance(50)) spec->eos_ids.push_back(rng_.In(0, vocab - 1));
  if (rng_.Chance(20)) spec->sampling.stop_token_ids.push_back(rng_.In(0, vocab - 1));
  spec->sampling.ignore_eos = rng_.Chance(15);
  spec->decodes = rng_.Chance(50);
  if (spec->decodes && rng_.Chance(60)) {
    spec->stop = {Letter(rng_.In(0, vocab - 1)), Letter(rng_.In(0, vocab - 1))};
    spec->sampling.stop = {spec->stop};
  }
  const int32_t most = spec->sampling.max_tokens.value_or(5);
  if (rng_.Chance(20)) spec->sampling.min_tokens = rng_.In(0, std::min(most, 8));
  if (client_rng_.Chance(structured_percent_)) {
    spec->sampling.structured_output = {.kind = StructuredOutput::Kind::kRegex,
                                        .text = std::to_string(client_rng_.Next())};
  } else if (client_rng_.Chance(35)) {
    spec->sampling.thinking_token_budget = client_rng_.In(0, 8);
  }
}

void Simulation::DrawBeams(SamplingParams* sampling) {
  BeamSearchParams& beams = sampling->beam_search.emplace();
  const int32_t most = client_rng_.Chance(95) ? core_options_.max_seqs : 8;
  beams.width = client_rng_.In(1, std::min(most, 6));
  beams.length_penalty = static_cast<float>(client_rng_.In(-2, 6)) / 2;
  beams.early_stopping = static_cast<EarlyStopping>(client_rng_.In(0, 2));
  sampling->n = client_rng_.In(1, beams.width);
  if (sampling->max_tokens == 0) sampling->max_tokens = 1;
  sampling->min_tokens =
      std::min(sampling->min_tokens, sampling->max_tokens.value_or(sampling->min_tokens));
}

RequestSpec Simulation::DrawRequest() {
  RequestSpec spec;
  spec.id = next_id_++;
  Prompt prompt = DrawPrompt();
  spec.prompt = std::move(prompt.tokens);
  spec.images = std::move(prompt.images);
  SamplingParams& p = spec.sampling;
  p.seed = rng_.Next();
  spec.salt = fmt::format("salt {}", SaltOf(*p.seed));
  if (rng_.Chance(95)) p.max_tokens = rng_.In(rng_.Chance(5) ? 0 : 1, max_generated_);
  if (rng_.Chance(20)) p.n = rng_.In(2, 4);
  if (rng_.Chance(15)) p.prompt_logprobs = 0;
  if (rng_.Chance(20)) p.logprobs = 0;
  spec.priority = rng_.Chance(20) ? rng_.In(-1, 2) : 0;
  if (client_rng_.Chance(60)) spec.client = client_rng_.In(0, num_clients_ - 1);
  DrawEnds(&spec);
  if (client_rng_.Chance(beam_percent_)) DrawBeams(&p);
  return spec;
}

void Simulation::SubmitOne() {
  RequestSpec spec = DrawRequest();
  Arrival arrival;
  arrival.id = spec.id;
  arrival.prompt = spec.prompt;
  for (const ImageSpan& span : spec.images) {
    arrival.images.push_back({span, std::make_shared<EncodeImage>(ImageOf(span.image))});
  }
  arrival.sampling = spec.sampling;
  arrival.eos_ids = spec.eos_ids;
  arrival.priority = spec.priority;
  arrival.client = fmt::format("client {}", spec.client);
  arrival.cache_root = spec.salt;
  for (int32_t i = 0; spec.decodes && i < spec.sampling.n; ++i) {
    arrival.decoders.push_back(std::make_unique<LetterDecoder>(spec.stop));
  }
  arrival.constraints = MakeConstraints(spec.sampling);
  arrival.on_output = [this](OutputChunk chunk) { OnChunk(std::move(chunk)); };
  if (!spec.sampling.max_tokens) spec.max_length = core_->MaxLength(arrival);
  if (writer_) writer_->WriteArrival(arrival);
  const Status status = core_->Submit(std::move(arrival));
  if (!status.ok()) {
    ++stats_.refused;
    const bool expected = status.code() == StatusCode::kResourceExhausted ||
                          status.code() == StatusCode::kUnavailable;
    if (!expected) Fail("request {} refused: {}", spec.id, status.ToString());
    return;
  }
  ++stats_.requests;
  if (spec.sampling.structured_output) ++stats_.structured;
  if (spec.sampling.beam_search) ++stats_.searches;
  if (spec.sampling.thinking_token_budget) ++stats_.budgets;
  if (!spec.images.empty()) ++stats_.with_images;
  Live live;
  live.unfinished = spec.sampling.n;
  live.choices.resize(spec.sampling.n);
  live.spec = std::move(spec);
  live_.emplace(live.spec.id, std::move(live));
}

void Simulation::CancelOne() {
  const RequestId id = rng_.Next() % next_id_ + 1;  // may have ended or may not exist
  if (writer_) writer_->Write(CancelEvent{id});
  core_->Cancel(id);
  const auto found = live_.find(id);
  if (found != live_.end()) found->second.cancelled = true;
}

void Simulation::Pause(Live* live) {
  const RequestId id = live->spec.id;
  if (writer_) writer_->Write(PauseEvent{id});
  core_->Pause(id);
  live->paused = true;
  live->late_tokens = 0;
  checker_->OnPause();
  ++stats_.pauses;
}

void Simulation::Resume(Live* live) {
  const RequestId id = live->spec.id;
  if (writer_) writer_->Write(ResumeEvent{id});
  core_->Resume(id);
  live->paused = false;
  checker_->OnPause();
}

void Simulation::LoseExecutor() {
  if (ranks_ != nullptr) {
    ranks_->DieSometimes();
    if (!lost_heard_ || rank_rng_.Chance(50)) return;  // the news may come late
    lost_heard_ = ranks_->broken();
  }
  const Status lost = executor()->Lost();
  if (lost.ok()) return;
  if (writer_) writer_->Write(LostEvent{lost});
  core_->LoseExecutor(lost);
}

void Simulation::PauseOrResumeOne() {
  if (live_.empty()) return;
  auto found = live_.begin();
  std::advance(found, client_rng_.In(0, static_cast<int32_t>(live_.size()) - 1));
  found->second.paused ? Resume(&found->second) : Pause(&found->second);
}

bool Simulation::ResumeAll() {
  bool any = false;
  for (auto& [id, live] : live_) {
    if (!live.paused) continue;
    Resume(&live);
    any = true;
  }
  return any;
}

// The outputs.

void Simulation::OnChunk(OutputChunk chunk) {
  const auto found = live_.find(chunk.request);
  if (found == live_.end()) return Fail("a chunk of request {}, which has ended", chunk.request);
  Live& live = found->second;
  Choice& choice = live.choices.at(chunk.choice);
  if (choice.ended) return Fail("a chunk of request {} after its last", chunk.request);
  if (chunk.seed != *live.spec.sampling.seed) Fail("request {} has another seed", chunk.request);
  choice.tokens.insert(choice.tokens.end(), chunk.token_ids.begin(), chunk.token_ids.end());
  stats_.tokens += static_cast<int64_t>(chunk.token_ids.size());
  if (live.paused && !live.spec.sampling.beam_search) {
    live.late_tokens += static_cast<int32_t>(chunk.token_ids.size());
    const int32_t per_step = (1 + core_options_.drafts.most) * live.spec.sampling.n;
    if (live.late_tokens > executor_options_.limits.depth * per_step) {
      Fail("request {} goes on although it is paused", chunk.request);
    }
  }
  for (const TokenLogprobs& entry : chunk.logprobs) choice.logprobs.push_back(entry.token.logprob);
  if (!chunk.prompt_logprobs.empty() && choice.num_chunks > 0) Fail("late prompt logprobs");
  for (const TokenLogprobs& entry : chunk.prompt_logprobs) {
    choice.prompt_logprobs.push_back(entry.token.logprob);
  }
  choice.text += chunk.text;
  choice.usage = chunk.usage;
  choice.beam_score = chunk.beam_score;
  ++choice.num_chunks;
  if (!chunk.finish_reason) return;
  choice.ended = true;
  choice.reason = *chunk.finish_reason;
  choice.error = chunk.error;
  if (--live.unfinished > 0) return;
  VerifyRequest(live);
  live_.erase(found);
}

void Simulation::VerifyRequest(const Live& live) {
  const RequestSpec& spec = live.spec;
  std::vector<Expectation> wanted;
  const int32_t max_context = core_->options().max_context;
  if (spec.sampling.beam_search) {
    wanted = ExpectBeams(executor_options_.model, spec, max_context);
  } else {
    for (int32_t choice = 0; choice < spec.sampling.n; ++choice) {
      wanted.push_back(Expect(executor_options_.model, spec, choice, max_context));
    }
  }
  for (int32_t choice = 0; choice < spec.sampling.n; ++choice) VerifyChoice(live, choice, wanted);
  const Choice& first = live.choices[0];
  if (spec.sampling.prompt_logprobs) {
    const std::vector<float> expected = ExpectPromptLogprobs(spec);
    const bool whole = first.reason == FinishReason::kStop || first.reason == FinishReason::kLength;
    if (whole ? first.prompt_logprobs != expected : !IsPrefix(first.prompt_logprobs, expected)) {
      Fail("request {} has wrong prompt logprobs", spec.id);
    }
  } else if (!first.prompt_logprobs.empty()) {
    Fail("request {} has prompt logprobs that it did not ask for", spec.id);
  }
  size_t tokens = 0;
  for (const Choice& choice : live.choices) tokens += choice.tokens.size();
  int32_t counted = 0;  // the last of all chunks has the final count
  for (const Choice& choice : live.choices) {
    counted = std::max(counted, choice.usage.completion_tokens);
    if (choice.usage.prompt_tokens != static_cast<int32_t>(spec.prompt.size()) ||
        choice.usage.cached_tokens >= static_cast<int32_t>(spec.prompt.size())) {
      Fail("request {} has wrong usage", spec.id);
    }
  }
  if (static_cast<size_t>(counted) != tokens) Fail("request {} miscounts its tokens", spec.id);
}

void Simulation::VerifyChoice(const Live& live, int32_t choice,
                              const std::vector<Expectation>& wanted) {
  const RequestSpec& spec = live.spec;
  const Choice& got = live.choices[choice];
  const Expectation& want = wanted[choice];
  if (spec.sampling.beam_search && got.num_chunks != 1) {
    Fail("request {} choice {} has {} chunks", spec.id, choice, got.num_chunks);
  }
  if (!IsPrefix(got.tokens, want.tokens)) {
    Fail("request {} choice {}: wrong tokens", spec.id, choice);
  }
  if (want.text.compare(0, got.text.size(), got.text) != 0) {
    Fail("request {} choice {}: text \"{}\", expected \"{}\"", spec.id, choice, got.text,
         want.text);
  }
  const size_t num_logprobs = spec.sampling.logprobs ? got.tokens.size() : 0;
  if (got.logprobs.size() != num_logprobs || !IsPrefix(got.logprobs, want.logprobs)) {
    Fail("request {} choice {}: wrong logprobs", spec.id, choice);
  }
  switch (got.reason) {
    case FinishReason::kCancelled:
      if (!live.cancelled) Fail("request {} was not cancelled", spec.id);
      return;
    case FinishReason::kError: {
      if (IsInjected(got.error)) return;
      // The first choice that cannot go on ends all.
      for (const Expectation& other : wanted) {
        const RowHealth health = other.health;
        if (health == RowHealth::kOk || !IsErrorOf(health, got.error)) continue;
        ++stats_.unhealthy[static_cast<size_t>(health)];
        return;
      }
      Fail("request {}: {}", spec.id, got.error.ToString());
      return;
    }
    case FinishReason::kStop:
    case FinishReason::kLength:
      if (got.reason != want.reason || got.tokens.size() != want.tokens.size() ||
          got.text != want.text || got.beam_score != want.beam_score) {
        Fail("request {} choice {}: ended after {} tokens, expected {}", spec.id, choice,
             got.tokens.size(), want.tokens.size());
      }
  }
}

std::string Simulation::Run() {
  if (!verdict_.ok()) return verdict_.what();
  int64_t failures = 0;
  for (int64_t round = 0; verdict_.ok(); ++round) {
    // The engine has failed for good and takes no requests.
    const bool failed = !core_->health().ok();
    const bool more = executor_->num_steps() < options_.min_steps && !failed;
    while (more && rng_.Chance(arrival_percent_)) SubmitOne();
    if (cancel_permille_ > 0 && rng_.In(0, 999) < cancel_permille_) CancelOne();
    if (more && pause_permille_ > 0 && client_rng_.In(0, 999) < pause_permille_) PauseOrResumeOne();
    LoseExecutor();
    if (!more && !core_->HasWork() && !ResumeAll()) break;
    if (rng_.Chance(30)) clock_.Advance(std::chrono::microseconds(rng_.In(0, 3000)));
    if (writer_) writer_->Write(StepEvent{});
    // Ranks that have failed take no steps, and the engine hears of it later.
    bool broken = ranks_ != nullptr && ranks_->broken();
    core_->Step();
    broken = broken || (ranks_ != nullptr && ranks_->broken());
    if (num_failures() != failures || broken) checker_->OnFailure();
    failures = num_failures();
    checker_->AfterStep();
    if (!broken) checker_->CheckImages(executor_->images());
    if (round > kMaxRounds) Fail("no end after {} rounds", round);
  }
  if (!core_->health().ok()) {
    stats_.failed_engines = 1;
    const int64_t refused = stats_.refused;
    SubmitOne();
    if (stats_.refused == refused) Fail("an engine that has failed took a request");
  }
  if (verdict_.ok()) checker_->AtEnd();
  if (verdict_.ok() && !live_.empty()) Fail("request {} never ended", live_.begin()->first);
  stats_.steps = executor_->num_steps();
  stats_.rows = executor_->num_rows();
  stats_.copies = executor_->num_copies();
  stats_.drafts = executor_->num_drafts();
  stats_.accepted = executor_->num_accepted();
  stats_.masked = executor_->num_masked_accepted();
  stats_.proposals = executor_->num_proposals();
  stats_.forks = executor_->num_forks();
  stats_.encoded = executor_->num_encoded();
  stats_.with_state = executor_options_.limits.cache.sequence_state ? stats_.requests : 0;
  stats_.failures = failures;
  if (ranks_ != nullptr) {
    stats_.with_ranks = 1;
    stats_.overtaken = ranks_->num_overtaken();
    stats_.restarts = ranks_->num_restarts();
  }
  stats_.preemptions = checker_->preemptions();
  stats_.cached_tokens = checker_->cached_tokens();
  return verdict_.what();
}

}  // namespace tokamak::sim
