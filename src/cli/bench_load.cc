#include "cli/bench_load.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/mutex.h"
#include "base/version.h"

namespace tokamak::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

double Seconds(SteadyClock::duration d) { return std::chrono::duration<double>(d).count(); }

// The times of one request's tokens, in seconds since the load began.
using TokenTimes = std::vector<double>;

// Written by the engine thread.
struct Progress {
  Mutex mutex;
  CondVar ended;
  std::vector<TokenTimes> times GUARDED_BY(mutex);
  size_t open GUARDED_BY(mutex) = 0;
  Status error GUARDED_BY(mutex);
};

void Take(Progress& progress, size_t i, SteadyClock::time_point start, const OutputChunk& chunk) {
  const double now = Seconds(SteadyClock::now() - start);
  MutexLock lock(progress.mutex);
  TokenTimes& times = progress.times[i];
  times.insert(times.end(), chunk.token_ids.size(), now);
  if (!chunk.finish_reason) return;
  if (!chunk.error.ok() && progress.error.ok()) progress.error = chunk.error;
  if (--progress.open == 0) progress.ended.NotifyAll();
}

// Bytes of keys and values read by `steps` decode steps of a request that already has `tokens`
// output tokens: each step reads all earlier positions.
double DecodeKvBytes(const Load& load, size_t tokens, size_t steps, const ModelInfo& model) {
  const auto start = static_cast<double>(load.prompt.size() + tokens) - 1;
  const auto n = static_cast<double>(steps);
  return (start * n + n * (n + 1) / 2) * static_cast<double>(model.kv_token_bytes);
}

// Once the last request has its first token, all requests decode in each step, until the first one
// ends. The times of the last request's tokens are the times of these steps.
Phases FindPhases(const std::vector<Load>& load, const std::vector<TokenTimes>& times,
                  const ModelInfo& model) {
  Phases phases;
  const TokenTimes* latest = nullptr;
  double first_end = std::numeric_limits<double>::infinity();
  for (const TokenTimes& one : times) {
    if (one.empty()) return {};
    if (latest == nullptr || one.front() > latest->front()) latest = &one;
    first_end = std::min(first_end, one.back());
  }
  if (latest == nullptr) return {};
  phases.prompts_s = latest->front();
  const auto end = std::upper_bound(latest->begin(), latest->end(), first_end);
  if (end - latest->begin() < 2) return phases;
  phases.decode_steps = end - latest->begin() - 1;
  phases.decode_s = *(end - 1) - phases.prompts_s;
  for (size_t i = 0; i < load.size(); ++i) {
    const auto before =
        std::upper_bound(times[i].begin(), times[i].end(), phases.prompts_s) - times[i].begin();
    const auto after = std::upper_bound(times[i].begin(), times[i].end(), *(end - 1));
    phases.decode_tokens += after - times[i].begin() - before;
    phases.decode_kv_bytes += DecodeKvBytes(load[i], static_cast<size_t>(before),
                                            static_cast<size_t>(phases.decode_steps), model);
  }
  return phases;
}

// The imbalance of each MoE layer over the steps between the two.
std::vector<double> ExpertImbalances(const EngineStats& before, const EngineStats& after) {
  std::vector<double> imbalances;
  for (size_t i = 0; i < after.expert_positions.size(); ++i) {
    std::vector<int64_t> positions = after.expert_positions[i];
    for (size_t e = 0; i < before.expert_positions.size() && e < positions.size(); ++e) {
      positions[e] -= before.expert_positions[i][e];
    }
    imbalances.push_back(ExpertImbalance(positions));
  }
  return imbalances;
}

// How many experts each MoE layer uses in a decode step between the two, on average.
double ExpertsTouched(const EngineStats& before, const EngineStats& after) {
  const auto sum = [](const std::vector<int64_t>& layers) {
    return std::accumulate(layers.begin(), layers.end(), int64_t{0});
  };
  const int64_t steps = after.decode_steps - before.decode_steps;
  if (steps == 0 || after.decode_experts.empty()) return 0;
  return static_cast<double>(sum(after.decode_experts) - sum(before.decode_experts)) /
         static_cast<double>(steps) / static_cast<double>(after.decode_experts.size());
}

void Describe(const ModelInfo& model, BenchResult& result) {
  result.model = model.name;
  result.backend = model.backend;
  result.device = model.device;
  result.threads = model.threads;
  result.load_s = model.load_seconds;
  result.peak_rss_mb = PeakRssMb();
  result.peak_device_mb = static_cast<double>(model.device_bytes) / 1e6;
  result.commit = Commit();
}

}  // namespace

std::vector<int32_t> RandomPrompt(int32_t length, int32_t vocab_size, loadgen::Random& random) {
  std::vector<int32_t> prompt(static_cast<size_t>(length));
  for (int32_t& token : prompt) token = random.InRange(0, vocab_size - 1);
  return prompt;
}

double PeakRssMb() {
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
}

Result<LoadRun> RunLoad(Engine& engine, const std::vector<Load>& load) {
  const auto progress = std::make_shared<Progress>();
  {
    MutexLock lock(progress->mutex);
    progress->times.resize(load.size());
    progress->open = load.size();
  }
  const EngineStats before = engine.stats();
  const auto start = SteadyClock::now();
  Status refused;
  for (size_t i = 0; i < load.size(); ++i) {
    Request request;
    request.token_ids = load[i].prompt;
    request.sampling.temperature = load[i].temperature;
    request.sampling.seed = static_cast<uint64_t>(i);
    request.sampling.max_tokens = load[i].output_tokens;
    request.sampling.ignore_eos = true;
    const auto id = engine.Submit(
        std::move(request),
        [progress, i, start](const OutputChunk& chunk) { Take(*progress, i, start, chunk); });
    if (id.ok()) continue;
    refused = id.status();
    MutexLock lock(progress->mutex);
    progress->open -= load.size() - i;
    break;
  }
  MutexLock lock(progress->mutex);
  while (progress->open > 0) progress->ended.Wait(progress->mutex);
  if (!refused.ok()) return refused;
  if (!progress->error.ok()) return progress->error;

  const ModelInfo& model = engine.model();
  LoadRun run{.result = {}, .phases = FindPhases(load, progress->times, model)};
  BenchResult& result = run.result;
  std::vector<double> ttft_ms, tpot_ms;
  double kv_bytes = 0;
  for (size_t i = 0; i < load.size(); ++i) {
    const TokenTimes& times = progress->times[i];
    result.temperature = load[i].temperature;
    result.input_tokens += static_cast<int64_t>(load[i].prompt.size());
    if (times.empty()) continue;
    result.output_tokens += static_cast<int64_t>(times.size());
    result.seconds = std::max(result.seconds, times.back());
    kv_bytes += DecodeKvBytes(load[i], 1, times.size() - 1, model);
    ttft_ms.push_back(times.front() * 1e3);
    if (times.size() > 1) {
      tpot_ms.push_back((times.back() - times.front()) * 1e3 /
                        static_cast<double>(times.size() - 1));
    }
  }
  Describe(model, result);
  result.requests = static_cast<int64_t>(load.size());
  result.prompt_tok_s = static_cast<double>(result.input_tokens) / result.seconds;
  result.output_tok_s = static_cast<double>(result.output_tokens) / result.seconds;
  const double token_gmacs = static_cast<double>(model.token_macs) / 1e9;
  const double logits_gmacs = static_cast<double>(model.logits_macs) / 1e9;
  result.prompt_gmac_s = result.prompt_tok_s * token_gmacs;
  result.output_gmac_s = result.output_tok_s * (token_gmacs + logits_gmacs);
  result.ttft_ms = loadgen::SpreadOf(std::move(ttft_ms));
  result.tpot_ms = loadgen::SpreadOf(std::move(tpot_ms));
  const EngineStats after = engine.stats();
  result.drafts = after.drafts - before.drafts;
  result.accepted_drafts = after.accepted_drafts - before.accepted_drafts;
  result.experts_touched = ExpertsTouched(before, after);
  result.expert_imbalance = ExpertImbalances(before, after);
  const auto steps = static_cast<double>(after.steps - before.steps);
  const double tokens_per_step =
      static_cast<double>(result.input_tokens + result.output_tokens) / std::max(1.0, steps);
  result.weight_gb_s = steps * StepWeightBytes(model, tokens_per_step) / result.seconds / 1e9;
  result.kv_gb_s = kv_bytes / result.seconds / 1e9;
  return run;
}

}  // namespace tokamak::cli
