#include "server/testing/fake_engine.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"

namespace tokamak {
namespace {

int32_t MaxTokens(const Request& request) { return request.sampling.max_tokens.value_or(64); }

}  // namespace

FakeEngine::FakeEngine() {
  model_.name = "fake";
  model_.architecture = "FakeForCausalLM";
  model_.vocab_size = 256;
  model_.max_context = kContext;
  model_.chat_template =
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
      "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
      "{{ '<|im_start|>assistant\\n' }}{% endif %}";
  thread_ = std::thread([this] { Loop(); });
}

FakeEngine::~FakeEngine() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
    wake_.NotifyAll();
  }
  thread_.join();
}

Result<RequestId> FakeEngine::Submit(Request request, OutputCallback on_output) {
  MutexLock lock(mutex_);
  if (draining_) return Unavailable("draining");
  if (!health_.ok()) return Unavailable("the engine has failed: {}", health_.message());
  const size_t tokens = request.token_ids.size();
  if (tokens >= kContext) {
    return ResourceExhausted("prompt: {} tokens do not fit in {}", tokens, kContext);
  }
  ++submitted_;
  last_ = request;
  const RequestId id = next_id_++;
  Running& running = running_[id] = {std::move(request), std::move(on_output)};
  if (const auto& stop = running.request.sampling.stop; !stop.empty()) {
    running.stop = StopStringMatcher::Create(stop).value();
  }
  wake_.NotifyAll();
  return id;
}

void FakeEngine::Cancel(RequestId request) {
  MutexLock lock(mutex_);
  if (running_.count(request) == 0) return;
  to_cancel_.push_back(request);
  wake_.NotifyAll();
}

void FakeEngine::Pause(RequestId request) {
  MutexLock lock(mutex_);
  const auto found = running_.find(request);
  if (found != running_.end() && !ignore_pauses_) found->second.paused = true;
}

void FakeEngine::Resume(RequestId request) {
  MutexLock lock(mutex_);
  const auto found = running_.find(request);
  if (found != running_.end()) found->second.paused = false;
  wake_.NotifyAll();
}

Result<std::vector<int32_t>> FakeEngine::Tokenize(std::string_view text, bool, bool) const {
  ++tokenized_;
  {
    MutexLock lock(mutex_);
    const bool hold = text.size() >= hold_bytes_;
    holding_ += hold;
    while (text.size() >= hold_bytes_) released_.Wait(mutex_);
    holding_ -= hold;
  }
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  return ids;
}

Status FakeEngine::PrepareStructuredOutput(const StructuredOutput& output) const {
  const auto refused = [](std::string_view text, std::string_view path) {
    if (text.find("refused") == std::string::npos) return Status();
    return Status(StatusCode::kUnimplemented, fmt::format("{}.a: is refused", path));
  };
  for (size_t i = 0; i < output.tags.size(); ++i) {
    RETURN_IF_ERROR(
        refused(output.tags[i].schema, fmt::format("structured_output.tags[{}].content", i)));
  }
  for (size_t i = 0; i < output.calls.size(); ++i) {
    RETURN_IF_ERROR(
        refused(output.calls[i].schema, fmt::format("structured_output.calls[{}].content", i)));
  }
  return refused(output.text, "structured_output");
}

Result<ImageData> FakeEngine::PrepareImage(std::string_view bytes,
                                           const ImageOptions& options) const {
  {
    MutexLock lock(mutex_);
    const bool hold = hold_images_;
    holding_ += hold;
    while (hold_images_) released_.Wait(mutex_);
    holding_ -= hold;
  }
  if (bytes == "refused") return ResourceExhausted("the image is refused");
  return ImageData{.bytes = std::string(bytes),
                   .options = options,
                   .tokens = std::vector<int32_t>(bytes.size(), '#')};
}

std::string FakeEngine::Detokenize(const std::vector<int32_t>& ids) const {
  std::string text;
  for (const int32_t id : ids) text += static_cast<char>(id);
  return text;
}

std::string FakeEngine::TokenBytes(int32_t id) const {
  MutexLock lock(mutex_);
  if (id == hold_id_) {
    ++holding_;
    while (id == hold_id_) released_.Wait(mutex_);
    --holding_;
  }
  return std::string(1, static_cast<char>(id));
}

EngineStats FakeEngine::stats() const {
  MutexLock lock(mutex_);
  EngineStats stats;
  for (const auto& [id, running] : running_) ++(running.paused ? stats.paused : stats.running);
  stats.seconds_since_progress = seconds_since_progress_;
  stats.restarting = restarting_;
  return stats;
}

void FakeEngine::Snapshot(SnapshotCallback on_snapshot) {
  ++snapshots_;
  if (hold_snapshots_) return;
  auto snapshot = std::make_shared<EngineSnapshot>();
  snapshot->time =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  snapshot->stats = stats();
  snapshot->blocks.map = ".";
  snapshot->blocks.total = snapshot->blocks.free = 1;
  snapshot->tree.push_back({});
  on_snapshot(std::move(snapshot));
}

Status FakeEngine::health() const {
  MutexLock lock(mutex_);
  return health_;
}

void FakeEngine::Break(Status error) {
  MutexLock lock(mutex_);
  health_ = std::move(error);
  wake_.NotifyAll();
}

void FakeEngine::FailStep(Status error) {
  MutexLock lock(mutex_);
  failed_step_ = std::move(error);
  wake_.NotifyAll();
}

void FakeEngine::Drain(double timeout_seconds) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_seconds);
  for (;;) {
    MutexLock lock(mutex_);
    draining_ = true;
    if (running_.empty()) return;
    if (std::chrono::steady_clock::now() > deadline) {
      for (const auto& [id, running] : running_) to_cancel_.push_back(id);
      wake_.NotifyAll();
    }
    wake_.WaitFor(mutex_, std::chrono::milliseconds(5));
  }
}

Request FakeEngine::last_request() const {
  MutexLock lock(mutex_);
  return last_;
}

void FakeEngine::HoldTokenize(size_t bytes) {
  MutexLock lock(mutex_);
  hold_bytes_ = bytes;
}

void FakeEngine::ReleaseTokenize() {
  MutexLock lock(mutex_);
  hold_bytes_ = SIZE_MAX;
  released_.NotifyAll();
}

void FakeEngine::HoldImages() {
  MutexLock lock(mutex_);
  hold_images_ = true;
}

void FakeEngine::ReleaseImages() {
  MutexLock lock(mutex_);
  hold_images_ = false;
  released_.NotifyAll();
}

void FakeEngine::HoldTokenBytes(int32_t id) {
  MutexLock lock(mutex_);
  hold_id_ = id;
}

void FakeEngine::ReleaseTokenBytes() {
  MutexLock lock(mutex_);
  hold_id_ = -1;
  released_.NotifyAll();
}

void FakeEngine::Loop() {
  for (;;) {
    Tick();
    {
      MutexLock lock(mutex_);
      if (stop_) return;
      if (Idle()) wake_.WaitFor(mutex_, std::chrono::milliseconds(50));
    }
    if (tick_us_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(tick_us_));
  }
}

bool FakeEngine::MayEmit(const Running& running) const {
  const bool last = running.done + 1 >= MaxTokens(running.request);
  return !running.paused && !(last && hold_last_token_);
}

bool FakeEngine::Idle() const {
  const bool fails = !health_.ok() || !failed_step_.ok();
  if (!to_cancel_.empty() || (fails && !running_.empty())) return false;
  return std::none_of(running_.begin(), running_.end(),
                      [&](const auto& entry) { return MayEmit(entry.second); });
}

void FakeEngine::Tick() {
  Outputs outputs;
  {
    MutexLock lock(mutex_);
    for (const RequestId id : std::exchange(to_cancel_, {})) {
      if (running_.contains(id)) ++cancelled_;
      End(id, FinishReason::kCancelled, Status(), outputs);
    }
    const Status error = failed_step_.ok() ? health_ : std::exchange(failed_step_, Status());
    while (!error.ok() && !running_.empty()) {
      End(running_.begin()->first, FinishReason::kError, error, outputs);
    }
    for (auto it = running_.begin(); it != running_.end();) {
      const bool last = MayEmit(it->second) && Emit(it->first, it->second, outputs);
      it = last ? running_.erase(it) : std::next(it);
    }
  }
  for (auto& [callback, chunk] : outputs) callback(std::move(chunk));
}

void FakeEngine::End(RequestId id, FinishReason reason, const Status& error, Outputs& outputs) {
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  for (int32_t choice = 0; choice < found->second.request.sampling.n; ++choice) {
    OutputChunk chunk;
    chunk.request = id;
    chunk.choice = choice;
    chunk.finish_reason = reason;
    chunk.error = error;
    outputs.emplace_back(found->second.on_output, std::move(chunk));
  }
  running_.erase(found);
}

bool FakeEngine::Emit(RequestId id, Running& running, Outputs& outputs) {
  const Request& request = running.request;
  const std::vector<int32_t>& prompt = request.token_ids;
  const int32_t max_tokens = MaxTokens(request);
  ++running.done;
  ++steps_;
  const int32_t token = prompt[static_cast<size_t>(running.done - 1) % prompt.size()];
  std::string text(1, static_cast<char>(token));
  if (running.stop) text = running.stop->Append(text);
  const bool stopped = running.stop && running.stop->matched();
  const bool last = stopped || running.done >= max_tokens;
  if (running.stop && last && !stopped) text += running.stop->Flush();
  running.shown += static_cast<int32_t>(text.size());
  for (int32_t choice = 0; choice < request.sampling.n; ++choice) {
    OutputChunk chunk;
    chunk.request = id;
    chunk.choice = choice;
    chunk.seed = request.sampling.seed.value_or(7);
    if (running.done <= max_tokens) {
      chunk.token_ids = {token};
      chunk.text = text;
      chunk.tokens_held = running.done - running.shown;
      if (request.sampling.logprobs) {
        TokenLogprobs logprobs{.token = {token, -0.5f}, .top = {}};
        for (int32_t i = 0; i < *request.sampling.logprobs; ++i) {
          logprobs.top.push_back({token + i, -0.5f - static_cast<float>(i)});
        }
        chunk.logprobs.push_back(logprobs);
      }
    }
    if (running.done == 1 && choice == 0 && request.sampling.prompt_logprobs) {
      for (size_t i = 1; i < prompt.size(); ++i) {
        chunk.prompt_logprobs.push_back({.token = {prompt[i], -1.0f}, .top = {}});
      }
    }
    if (last) chunk.finish_reason = stopped ? FinishReason::kStop : FinishReason::kLength;
    chunk.usage = {.prompt_tokens = static_cast<int32_t>(prompt.size()),
                   .cached_tokens = 0,
                   .completion_tokens = running.done * request.sampling.n};
    outputs.emplace_back(running.on_output, std::move(chunk));
  }
  return last;
}

}  // namespace tokamak
