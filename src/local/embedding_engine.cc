#include "local/embedding_engine.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>

#include "base/error.h"
#include "engine/step_failure.h"

namespace tokamak {
namespace {

TimePoint Now() { return std::chrono::steady_clock::now(); }

bool IsFinite(const std::vector<float>& vector) {
  return std::all_of(vector.begin(), vector.end(), [](float x) { return std::isfinite(x); });
}

// Keeps the first `dimensions` values and normalizes again if the whole vector was normalized.
void Cut(size_t dimensions, bool normalize, std::vector<float>& vector) {
  if (dimensions >= vector.size()) return;
  vector.resize(dimensions);
  if (!normalize) return;
  double squares = 0;
  for (const float x : vector) squares += static_cast<double>(x) * x;
  const double scale = 1 / std::max(std::sqrt(squares), 1e-12);
  for (float& x : vector) x = static_cast<float>(x * scale);
}

// "input" or "input[3]": the field to name in errors.
std::string PathOf(const EmbeddingRequest& request, size_t i) {
  return request.inputs.size() == 1 ? "input" : fmt::format("input[{}]", i);
}

}  // namespace

EmbeddingEngine::EmbeddingEngine(EmbeddingParts parts)
    : parts_(std::move(parts)), thread_([this] { Run(); }) {}

EmbeddingEngine::~EmbeddingEngine() {
  Drain(0);
  {
    MutexLock lock(mutex_);
    stop_ = true;
    wake_.NotifyAll();
  }
  thread_.join();
}

// Checks what needs no tokenizing.
Status EmbeddingEngine::Check(const EmbeddingRequest& request) const {
  const EmbeddingInfo& info = parts_.model.embedding;
  if (request.inputs.empty()) return InvalidArgument("input: must not be empty");
  if (request.dimensions && *request.dimensions != info.dimensions) {
    const int32_t wanted = *request.dimensions;
    if (!info.any_dimensions && info.cut_dimensions.empty()) {
      return InvalidArgument(
          "dimensions: this model's vectors cannot be shortened; they have {} dimensions",
          info.dimensions);
    }
    const auto& lengths = info.cut_dimensions;
    const bool listed = std::binary_search(lengths.begin(), lengths.end(), wanted);
    if (!listed && !(info.any_dimensions && wanted >= 1 && wanted < info.dimensions)) {
      return InvalidArgument("dimensions: this model does not allow {}, only {}", wanted,
                             info.any_dimensions ? fmt::format("1 to {}", info.dimensions)
                                                 : fmt::format("{}", fmt::join(lengths, ", ")));
    }
  }
  if (request.truncate_prompt_tokens && *request.truncate_prompt_tokens != -1 &&
      *request.truncate_prompt_tokens < 1) {
    return InvalidArgument("truncate_prompt_tokens: must be at least 1, or -1 for the model's {}",
                           parts_.model.max_context);
  }
  return Status();
}

Status EmbeddingEngine::CheckLength(size_t tokens, const std::string& path) const {
  if (tokens <= static_cast<size_t>(parts_.model.max_context)) return Status();
  return ResourceExhausted(
      "{}: has {} tokens, but this model takes at most {}; split the text, or cut it with "
      "truncate_prompt_tokens",
      path, tokens, parts_.model.max_context);
}

// Keeps the special tokens and shortens the text.
Status EmbeddingEngine::Truncate(const EmbeddingRequest& request, bool special,
                                 std::vector<int32_t>& ids) const {
  if (!request.truncate_prompt_tokens) return Status();
  const int32_t most = parts_.model.max_context;
  const auto limit = static_cast<size_t>(*request.truncate_prompt_tokens == -1
                                             ? most
                                             : std::min(most, *request.truncate_prompt_tokens));
  if (ids.size() <= limit) return Status();
  if (!special || parts_.tokenizer == nullptr) {
    ids.resize(limit);
    return Status();
  }
  const size_t before = parts_.tokenizer->added_before().size();
  const size_t after = parts_.tokenizer->added_after().size();
  if (limit < before + after) {
    return InvalidArgument(
        "truncate_prompt_tokens: must be at least {}, the number of special tokens that this model "
        "adds to a text",
        before + after);
  }
  ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(limit - after),
            ids.end() - static_cast<std::ptrdiff_t>(after));
  return Status();
}

Result<std::vector<int32_t>> EmbeddingEngine::TokensOf(const std::string& text,
                                                       const std::string& prompt,
                                                       const EmbeddingRequest& request) const {
  ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                   Tokenize(prompt.empty() ? text : prompt + text, request.add_special_tokens,
                            request.parse_special_tokens));
  RETURN_IF_ERROR(Truncate(request, request.add_special_tokens, ids));
  return ids;
}

Result<EmbeddingRequest> EmbeddingEngine::TokenizeInputs(EmbeddingRequest request) const {
  RETURN_IF_ERROR(Check(request));
  const std::string& name =
      request.prompt_name.empty() ? parts_.default_prompt : request.prompt_name;
  std::string prompt;
  if (!name.empty()) {
    const auto found = std::find_if(parts_.prompts.begin(), parts_.prompts.end(),
                                    [&](const auto& entry) { return entry.first == name; });
    if (found == parts_.prompts.end()) {
      return InvalidArgument(
          "prompt_name: this model has no such prompt; it has {}",
          parts_.prompts.empty()
              ? "none"
              : fmt::format("{}", fmt::join(parts_.model.embedding.prompts, ", ")));
    }
    prompt = found->second;
  }
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    EmbeddingInput& input = request.inputs[i];
    const std::string path = PathOf(request, i);
    if (input.text && !input.token_ids.empty()) {
      return InvalidArgument("{}: give either text or token ids, not both", path);
    }
    if (input.text) {
      ASSIGN_OR_RETURN(input.token_ids, TokensOf(*input.text, prompt, request));
      input.text.reset();
    } else {
      RETURN_IF_ERROR(Truncate(request, /*special=*/false, input.token_ids));
    }
    if (input.token_ids.empty()) {
      return InvalidArgument("{}: must hold at least one token", path);
    }
    RETURN_IF_ERROR(CheckLength(input.token_ids.size(), path));
    for (size_t j = 0; j < input.token_ids.size(); ++j) {
      const int32_t id = input.token_ids[j];
      if (id < 0 || id >= parts_.model.vocab_size) {
        return InvalidArgument("{}[{}]: token id {} is outside [0, {})", path, j, id,
                               parts_.model.vocab_size);
      }
    }
  }
  request.truncate_prompt_tokens.reset();
  return request;
}

Result<RequestId> EmbeddingEngine::Submit(EmbeddingRequest request, EmbeddingCallback on_output) {
  auto job = std::make_unique<Job>();
  ASSIGN_OR_RETURN(job->request, TokenizeInputs(std::move(request)));
  job->on_output = std::move(on_output);
  job->submitted = Now();
  job->output.vectors.resize(job->request.inputs.size());
  for (const EmbeddingInput& input : job->request.inputs) {
    job->output.usage.prompt_tokens += static_cast<int32_t>(input.token_ids.size());
  }
  MutexLock lock(mutex_);
  if (!failed_.ok()) return Unavailable("the engine has failed: {}", failed_.message());
  if (draining_) return Unavailable("the engine is shutting down");
  if (jobs_.size() >= static_cast<size_t>(parts_.options.max_queue)) {
    return Unavailable(
        "the queue is full: {} requests are running or waiting (max_queue {}); try again later",
        jobs_.size(), parts_.options.max_queue);
  }
  job->id = next_id_.fetch_add(1);
  job->output.request = job->id;
  counted_.prompt_tokens += job->output.usage.prompt_tokens;
  if (jobs_.empty()) last_progress_ = job->submitted;
  const RequestId id = job->id;
  jobs_.push_back(std::move(job));
  ++open_;
  wake_.NotifyOne();
  return id;
}

Result<EmbeddingOutput> Embedder::Embed(EmbeddingRequest request) {
  const auto promise = std::make_shared<std::promise<EmbeddingOutput>>();
  RETURN_IF_ERROR(Submit(std::move(request), [promise](EmbeddingOutput output) {
                    promise->set_value(std::move(output));
                  }).status());
  EmbeddingOutput output = promise->get_future().get();
  if (!output.error.ok()) return output.error;
  return output;
}

void EmbeddingEngine::Cancel(RequestId request) {
  MutexLock lock(mutex_);
  for (const auto& job : jobs_) {
    if (job->id == request) job->cancelled = true;
  }
  wake_.NotifyOne();
}

void EmbeddingEngine::Drain(double timeout_seconds) {
  MutexLock lock(mutex_);
  draining_ = true;
  const auto deadline = Now() + std::chrono::duration<double>(timeout_seconds);
  while (open_ > 0) {
    const auto left = deadline - Now();
    if (left <= left.zero()) break;
    all_done_.WaitFor(mutex_, left);
  }
  for (const auto& job : jobs_) job->cancelled = true;
  wake_.NotifyOne();
  while (open_ > 0) all_done_.Wait(mutex_);
}

bool EmbeddingEngine::Ended(const Job& job) {
  return job.cancelled || !job.output.error.ok() || job.next == job.request.inputs.size();
}

void EmbeddingEngine::Run() {
  for (;;) {
    std::vector<std::unique_ptr<Job>> ended;
    std::vector<SnapshotCallback> watchers;
    std::shared_ptr<const EngineSnapshot> snapshot;
    std::vector<Place> batch;
    {
      MutexLock lock(mutex_);
      ended = TakeEnded();
      while (ended.empty() && watchers_.empty() && jobs_.empty() && !stop_) wake_.Wait(mutex_);
      if (stop_) return;  // follows a Drain, so there are no jobs
      watchers = std::exchange(watchers_, {});
      if (!watchers.empty()) snapshot = MakeSnapshot(Now());
      if (ended.empty()) batch = NextBatch();
    }
    // Ended jobs belong to this thread alone. Callbacks may submit and cancel.
    for (const auto& job : ended) job->on_output(std::move(job->output));
    for (const SnapshotCallback& watcher : watchers) watcher(snapshot);
    if (!ended.empty()) {
      MutexLock lock(mutex_);
      open_ -= static_cast<int64_t>(ended.size());
      all_done_.NotifyAll();
    }
    if (!batch.empty()) RunBatch(batch);
  }
}

// Takes one input of each job in turn, starting after the job served last, while they fit.
std::vector<EmbeddingEngine::Place> EmbeddingEngine::NextBatch() {
  std::vector<Place> batch;
  const EmbeddingShape& shape = parts_.runner->shape();
  const RequestId last = last_served_;
  const auto after =
      std::find_if(jobs_.begin(), jobs_.end(), [last](const auto& job) { return job->id > last; });
  auto turn = static_cast<size_t>(after - jobs_.begin());
  int64_t tokens = 0;
  size_t idle = 0;  // consecutive jobs with no input left
  for (; idle < jobs_.size() && batch.size() < static_cast<size_t>(shape.max_texts); ++turn) {
    Job& job = *jobs_[turn % jobs_.size()];
    if (Ended(job)) {
      ++idle;
      continue;
    }
    idle = 0;
    const auto length = static_cast<int64_t>(job.request.inputs[job.next].token_ids.size());
    if (!batch.empty() && tokens + length > shape.max_tokens) break;
    if (!job.started) {
      job.started = Now();
      counted_.queue_time.Observe(ToSeconds(*job.started - job.submitted));
    }
    batch.push_back({&job, job.next++});
    last_served_ = job.id;
    tokens += length;
  }
  counted_.step_tokens += tokens;
  counted_.prefill_tokens += tokens;
  return batch;
}

void EmbeddingEngine::RunBatch(const std::vector<Place>& batch) {
  std::vector<EmbeddingRunner::Text> texts;
  for (const Place& place : batch)
    texts.push_back(place.job->request.inputs[place.input].token_ids);
  Result<std::vector<std::vector<float>>> vectors = parts_.runner->Run(texts);
  const Status status = vectors.status();
  if (status.ok()) TakeVectors(batch, *std::move(vectors));
  MutexLock lock(mutex_);
  ++counted_.steps;
  last_progress_ = Now();
  if (status.ok()) return;
  // The device has failed, so nothing can run any more.
  failed_ = status;
  for (const auto& job : jobs_) job->output.error = StepFailure(failed_);
}

void EmbeddingEngine::TakeVectors(const std::vector<Place>& batch,
                                  std::vector<std::vector<float>> vectors) {
  for (size_t i = 0; i < batch.size(); ++i) {
    Job& job = *batch[i].job;
    if (i == 0 || batch[i - 1].job != &job) ++job.output.timings.steps;
    if (!IsFinite(vectors[i])) {
      job.output.error = Internal("{}: the model's output for this text is not finite",
                                  PathOf(job.request, batch[i].input));
      continue;
    }
    if (job.request.dimensions) {
      Cut(static_cast<size_t>(*job.request.dimensions), parts_.model.embedding.normalized,
          vectors[i]);
    }
    job.output.vectors[batch[i].input] = std::move(vectors[i]);
  }
}

std::vector<std::unique_ptr<EmbeddingEngine::Job>> EmbeddingEngine::TakeEnded() {
  std::vector<std::unique_ptr<Job>> ended;
  const TimePoint now = Now();
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    if (!Ended(**it)) {
      ++it;
      continue;
    }
    Job& job = **it;
    FinishReason reason = FinishReason::kStop;
    if (!job.output.error.ok()) {
      reason = FinishReason::kError;
    } else if (job.cancelled) {
      reason = FinishReason::kCancelled;
      job.output.error = Status(StatusCode::kCancelled, "the request was cancelled");
    }
    if (reason != FinishReason::kStop) job.output.vectors.clear();
    ++counted_.ended_requests[static_cast<size_t>(reason)];
    counted_.end_to_end.Observe(ToSeconds(now - job.submitted));
    const TimePoint started = job.started.value_or(now);
    job.output.timings.queued_seconds = ToSeconds(started - job.submitted);
    job.output.timings.prefill_seconds = ToSeconds(now - started);
    if (job.started) counted_.prefill_time.Observe(job.output.timings.prefill_seconds);
    ended.push_back(std::move(*it));
    it = jobs_.erase(it);
  }
  return ended;
}

EngineStats EmbeddingEngine::StatsNow(TimePoint now) const {
  EngineStats stats = counted_;
  for (const auto& job : jobs_) ++(job->started ? stats.running : stats.waiting);
  if (!jobs_.empty()) stats.seconds_since_progress = ToSeconds(now - last_progress_);
  return stats;
}

EngineStats EmbeddingEngine::stats() const {
  MutexLock lock(mutex_);
  return StatsNow(Now());
}

Status EmbeddingEngine::health() const {
  MutexLock lock(mutex_);
  return failed_;
}

void EmbeddingEngine::Snapshot(SnapshotCallback on_snapshot) {
  MutexLock lock(mutex_);
  watchers_.push_back(std::move(on_snapshot));
  wake_.NotifyOne();
}

std::shared_ptr<const EngineSnapshot> EmbeddingEngine::MakeSnapshot(TimePoint now) const {
  auto snapshot = std::make_shared<EngineSnapshot>();
  const auto unix_now = std::chrono::system_clock::now().time_since_epoch();
  snapshot->time = std::chrono::duration<double>(unix_now).count();
  snapshot->stats = StatsNow(now);
  snapshot->num_sequences = static_cast<int32_t>(jobs_.size());
  for (const auto& job : jobs_) {
    if (snapshot->sequences.size() >= EngineSnapshot::kMaxSequences) break;
    EngineSnapshot::Sequence sequence;
    sequence.request = job->request.label.empty() ? std::to_string(job->id) : job->request.label;
    sequence.state =
        job->started ? EngineSnapshot::State::kRunning : EngineSnapshot::State::kWaiting;
    sequence.prompt_tokens = job->output.usage.prompt_tokens;
    sequence.age_seconds = ToSeconds(now - job->submitted);
    snapshot->sequences.push_back(std::move(sequence));
  }
  return snapshot;
}

}  // namespace tokamak
