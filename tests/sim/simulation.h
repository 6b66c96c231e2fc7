// One schedule: a random configuration and workload, run to its end and checked.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/manual_clock.h"
#include "base/thread_pool.h"
#include "engine/engine_core.h"
#include "engine/record.h"
#include "sim/checker.h"
#include "sim/fake_executor.h"
#include "sim/fake_ranks.h"
#include "sim/model.h"

namespace tokamak::sim {

struct ScheduleOptions {
  uint64_t seed = 0;
  int32_t depth = 0;  // 0: drawn from the seed
  int32_t min_steps = 200;
  int32_t clients = 0;           // 0: drawn from the seed
  int32_t ranks = 0;             // behind a RemoteExecutor, of each stage; 0: drawn from the seed
  std::string record_path = {};  // where to record the run; empty: no recording
};

struct ScheduleStats {
  int64_t steps = 0;
  int64_t rows = 0;
  int64_t copies = 0;
  int64_t requests = 0;
  int64_t structured = 0;
  int64_t budgets = 0;  // requests with a thinking_token_budget
  int64_t drafts = 0;
  int64_t accepted = 0;  // of these
  int64_t masked = 0;    // of these, in rows with masks
  int64_t proposals = 0;
  int64_t searches = 0;  // requests with beam search
  int64_t forks = 0;
  int64_t with_images = 0;  // requests
  int64_t encoded = 0;      // images
  int64_t with_state = 0;   // requests to models that keep a state
  int64_t refused = 0;
  int64_t preemptions = 0;
  int64_t pauses = 0;
  int64_t failures = 0;
  int64_t failed_engines = 0;
  int64_t with_ranks = 0;  // schedules
  int64_t overtaken = 0;   // outputs of ranks that came before another rank's of an earlier step
  int64_t restarts = 0;    // of ranks
  int64_t cached_tokens = 0;
  int64_t tokens = 0;
  std::array<int64_t, 3> unhealthy = {};  // choices ended by each RowHealth

  void Add(const ScheduleStats& other);
};

class Simulation {
 public:
  explicit Simulation(const ScheduleOptions& options);
  ~Simulation();

  // Returns the first failure, or "".
  std::string Run();
  const ScheduleStats& stats() const { return stats_; }
  const FakeExecutorOptions& executor_options() const { return executor_options_; }

 private:
  struct Choice {
    std::vector<TokenId> tokens;
    std::vector<float> logprobs;
    std::vector<float> prompt_logprobs;
    std::string text;
    int32_t num_chunks = 0;
    bool ended = false;
    FinishReason reason = FinishReason::kLength;
    Status error;
    std::optional<float> beam_score;
    Usage usage;
  };
  struct Live {
    RequestSpec spec;
    bool cancelled = false;
    bool paused = false;
    int32_t late_tokens = 0;  // received after it was paused
    int32_t unfinished = 0;
    std::vector<Choice> choices;
  };

  Status StartCore();
  void DrawConfiguration();
  void DrawCache();
  void DrawRanks();
  void DrawImages();
  RequestSpec DrawRequest();
  struct Prompt {
    std::vector<TokenId> tokens;
    std::vector<ImageSpan> images;
  };
  Prompt DrawPrompt();
  // Whether a span shows all rows of its image.
  bool MustBeWhole() const { return executor_options_.limits.whole_image_rows > 0; }
  // Puts images into the prompt from position `begin` on.
  void AddImages(int32_t begin, Prompt* prompt);
  void DrawEnds(RequestSpec* spec);
  void DrawBeams(SamplingParams* sampling);
  void SubmitOne();
  void CancelOne();
  void Pause(Live* live);
  void Resume(Live* live);
  void PauseOrResumeOne();
  // The executor loses its workers now and then, whatever the engine does.
  void LoseExecutor();
  Executor* executor() { return remote_ ? remote_.get() : static_cast<Executor*>(executor_.get()); }
  int64_t num_failures() const {
    return ranks_ != nullptr ? ranks_->num_failures() : executor_->num_failures();
  }
  // Returns whether any were paused.
  bool ResumeAll();
  void OnChunk(OutputChunk chunk);
  void VerifyChoice(const Live& live, int32_t choice, const std::vector<Expectation>& wanted);
  void VerifyRequest(const Live& live);
  template <typename... Args>
  void Fail(const char* format, Args... args);

  const ScheduleOptions options_;
  Rng rng_;
  Rng client_rng_;
  Rng stage_rng_;
  Rng image_rng_;
  Rng rank_rng_;
  Verdict verdict_;
  ManualClock clock_;
  FakeExecutorOptions executor_options_;
  EngineCoreOptions core_options_;
  FakeRanksOptions rank_options_;  // stage_size 0: the executor has no ranks
  std::unique_ptr<FakeExecutor> executor_;
  FakeRanks* ranks_ = nullptr;            // of remote_
  std::unique_ptr<Executor> remote_;      // null without ranks
  bool lost_heard_ = false;               // the remote executor may be lost
  std::unique_ptr<RecordWriter> writer_;  // null: not recording
  std::unique_ptr<RecordingClock> recording_clock_;
  std::unique_ptr<RecordingExecutor> recording_executor_;
  std::unique_ptr<ThreadPool> pool_;  // makes masks; often null, because its threads spin
  std::unique_ptr<EngineCore> core_;
  std::unique_ptr<EngineChecker> checker_;
  ScheduleStats stats_;

  int32_t num_clients_ = 1;
  int32_t arrival_percent_ = 0;
  int32_t cancel_permille_ = 0;
  int32_t pause_permille_ = 0;
  int32_t structured_percent_ = 0;  // of the requests
  int32_t beam_percent_ = 0;        // of the requests
  int32_t num_images_ = 0;          // that requests show; 0: the model does not see
  int32_t max_prompt_ = 0;
  int32_t max_generated_ = 0;
  std::vector<Prompt> stems_;  // prefixes that prompts share
  RequestId next_id_ = 1;
  std::map<RequestId, Live> live_;
};

}  // namespace tokamak::sim
