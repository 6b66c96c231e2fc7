// An engine without a model, for tests of the server. Tokens are bytes (ids 0 to 255). The answer
// to a prompt repeats the prompt, one byte per tick, until its end or a stop string.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "tokamak/engine.h"
#include "tokenizer/stop_strings.h"

namespace tokamak {

class FakeEngine : public Engine {
 public:
  static constexpr int32_t kContext = 4096;

  FakeEngine();
  ~FakeEngine() override;

  Result<RequestId> Submit(Request request, OutputCallback on_output) override;
  void Cancel(RequestId request) override;
  void Pause(RequestId request) override EXCLUDES(mutex_);
  void Resume(RequestId request) override EXCLUDES(mutex_);
  size_t LeastTokens(std::string_view text) const override {
    return bytes_per_token_ == 0 ? 0 : (text.size() + bytes_per_token_ - 1) / bytes_per_token_;
  }
  Result<std::vector<int32_t>> Tokenize(std::string_view text, bool add_special,
                                        bool parse_special) const override;
  std::string Detokenize(const std::vector<int32_t>& ids) const override;
  std::string TokenBytes(int32_t id) const override;
  // Refuses schemas that hold the word "refused", at their member "a".
  Status PrepareStructuredOutput(const StructuredOutput& output) const override;
  // Takes any bytes but "refused", as an image of so many tokens.
  Result<ImageData> PrepareImage(std::string_view bytes,
                                 const ImageOptions& options) const override;
  const ModelInfo& model() const override { return model_; }
  EngineStats stats() const override;
  std::vector<EngineStats> replica_stats() const override { return {stats()}; }
  Status DrainReplica(int32_t /*replica*/, bool /*drain*/) override { return Status(); }
  // Answers at once, unless HoldSnapshots was called.
  void Snapshot(SnapshotCallback on_snapshot) override EXCLUDES(mutex_);
  Profile TakeProfile() override { return {}; }
  Status health() const override EXCLUDES(mutex_);
  const std::string& system_fingerprint() const override { return fingerprint_; }
  void Drain(double timeout_seconds) override;

  // Must be called before a server uses the engine.
  void SetChatTemplate(std::string jinja) { model_.chat_template = std::move(jinja); }
  void SetSamplingDefaults(const SamplingDefaults& defaults) { model_.sampling = defaults; }
  // Must be called before a server uses the engine. The placeholder of an image is '#'.
  void TakeImages(int32_t max_images) {
    model_.images = {.placeholder = "#",
                     .placeholder_id = '#',
                     .max_images = max_images,
                     .max_tokens = 9,
                     .max_bytes = 9,
                     .max_pixels = 1,
                     .options = {.min_pixels = 4, .max_pixels = 64},
                     .max_scaled_pixels = 100};
  }
  // The engine fails for good: running requests end with this error.
  void Break(Status error) EXCLUDES(mutex_);
  // Running requests end with this error, and the engine goes on.
  void FailStep(Status error) EXCLUDES(mutex_);
  // LeastTokens assumes from now on that a token may have so many bytes. In fact a token has one.
  void SetBytesPerToken(size_t bytes) { bytes_per_token_ = bytes; }
  void SetSecondsSinceProgress(double seconds) { seconds_since_progress_ = seconds; }
  void SetRestarting(std::string reason) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    restarting_ = std::move(reason);
  }
  void SetTick(std::chrono::microseconds tick) { tick_us_ = tick.count(); }
  // Snapshots are withheld from now on.
  void HoldSnapshots() { hold_snapshots_ = true; }
  int64_t snapshots() const { return snapshots_; }  // number of snapshots requested
  // Pause does nothing from now on, as if a step never ended.
  void IgnorePauses() { ignore_pauses_ = true; }
  // While `on`, no request gets its last token.
  void HoldLastToken(bool on) { hold_last_token_ = on; }
  int64_t cancelled() const { return cancelled_; }
  Request last_request() const;
  int64_t submitted() const { return submitted_; }
  int64_t steps() const { return steps_; }  // ticks of all requests together
  // Tokenize waits from now on for ReleaseTokenize, if its text has at least `bytes`.
  void HoldTokenize(size_t bytes) EXCLUDES(mutex_);
  void ReleaseTokenize() EXCLUDES(mutex_);
  // PrepareImage waits from now on for ReleaseImages.
  void HoldImages() EXCLUDES(mutex_);
  void ReleaseImages() EXCLUDES(mutex_);
  // TokenBytes of this token waits from now on for ReleaseTokenBytes.
  void HoldTokenBytes(int32_t id) EXCLUDES(mutex_);
  void ReleaseTokenBytes() EXCLUDES(mutex_);
  int64_t holding() const { return holding_; }      // waiting calls of these three
  int64_t tokenized() const { return tokenized_; }  // number of calls of Tokenize

 private:
  using Outputs = std::vector<std::pair<OutputCallback, OutputChunk>>;
  struct Running {
    Request request;
    OutputCallback on_output;
    std::optional<StopStringMatcher> stop = {};
    int32_t shown = 0;  // bytes of text that were compared with `stop`
    int32_t done = 0;   // tokens per choice
    bool paused = false;
  };

  void Loop();
  void Tick() EXCLUDES(mutex_);
  bool MayEmit(const Running& running) const;
  bool Idle() const REQUIRES(mutex_);  // nothing to do until a call
  void End(RequestId id, FinishReason reason, const Status& error, Outputs& outputs)
      REQUIRES(mutex_);
  // Generates one more token. Returns whether it was the last.
  bool Emit(RequestId id, Running& running, Outputs& outputs) REQUIRES(mutex_);

  ModelInfo model_;
  std::string fingerprint_ = "fp_fake";
  std::atomic<size_t> bytes_per_token_{0};
  std::atomic<double> seconds_since_progress_{0};
  std::atomic<int64_t> tick_us_{0};
  std::atomic<int64_t> cancelled_{0};
  std::atomic<int64_t> snapshots_{0};
  std::atomic<bool> hold_snapshots_{false};
  std::atomic<bool> ignore_pauses_{false};
  std::atomic<bool> hold_last_token_{false};
  std::atomic<int64_t> submitted_{0};
  std::atomic<int64_t> steps_{0};
  mutable std::atomic<int64_t> holding_{0};
  mutable std::atomic<int64_t> tokenized_{0};
  mutable Mutex mutex_;
  CondVar wake_;
  mutable CondVar released_;
  size_t hold_bytes_ GUARDED_BY(mutex_) = SIZE_MAX;
  int32_t hold_id_ GUARDED_BY(mutex_) = -1;
  bool hold_images_ GUARDED_BY(mutex_) = false;
  std::map<RequestId, Running> running_ GUARDED_BY(mutex_);
  std::vector<RequestId> to_cancel_ GUARDED_BY(mutex_);
  Request last_ GUARDED_BY(mutex_);
  RequestId next_id_ GUARDED_BY(mutex_) = 1;
  bool draining_ GUARDED_BY(mutex_) = false;
  Status health_ GUARDED_BY(mutex_);
  Status failed_step_ GUARDED_BY(mutex_);
  std::string restarting_ GUARDED_BY(mutex_);
  bool stop_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tokamak
