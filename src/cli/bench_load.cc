#include "cli/bench_load.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "api/version.h"
#include "base/mutex.h"

namespace tokamak::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

double Seconds(SteadyClock::duration d) { return std::chrono::duration<double>(d).count(); }

// splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
uint64_t NextRandom(uint64_t* state) {
  uint64_t z = (*state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// What one request went through. Times since the load began.
struct Times {
  double first = 0;
  double last = 0;
  int32_t tokens = 0;
};

// Written by the engine thread.
struct Progress {
  Mutex mutex;
  CondVar ended;
  std::vector<Times> times GUARDED_BY(mutex);
  size_t open GUARDED_BY(mutex) = 0;
  Status error GUARDED_BY(mutex);
};

// Nearest rank.
Percentiles PercentilesOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double p) {
    const auto rank =
        static_cast<size_t>(std::max(0.0, p * static_cast<double>(values.size()) - 1));
    return values[std::min(rank, values.size() - 1)];
  };
  return {.p50 = at(0.50), .p90 = at(0.90), .p99 = at(0.99)};
}

double PeakRssMb() {
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
}

void Take(Progress& progress, size_t i, SteadyClock::time_point start, const OutputChunk& chunk) {
  const double now = Seconds(SteadyClock::now() - start);
  MutexLock lock(progress.mutex);
  Times& times = progress.times[i];
  if (!chunk.token_ids.empty()) {
    if (times.tokens == 0) times.first = now;
    times.last = now;
    times.tokens += static_cast<int32_t>(chunk.token_ids.size());
  }
  if (!chunk.finish_reason) return;
  if (!chunk.error.ok() && progress.error.ok()) progress.error = chunk.error;
  if (--progress.open == 0) progress.ended.NotifyAll();
}

// Bytes of keys and values that decoding these reads: each token after the first sees all before.
double DecodeKvBytes(const Load& load, const Times& times, const ModelInfo& model) {
  const double prompt = static_cast<double>(load.prompt.size());
  const double steps = std::max(0, times.tokens - 1);
  return (prompt * steps + steps * (steps + 1) / 2) * static_cast<double>(model.kv_token_bytes);
}

}  // namespace

std::vector<int32_t> RandomPrompt(int32_t length, int32_t vocab_size, uint64_t* state) {
  std::vector<int32_t> prompt(static_cast<size_t>(length));
  for (int32_t& token : prompt) token = RandomInRange(0, vocab_size - 1, state);
  return prompt;
}

int32_t RandomInRange(int32_t low, int32_t high, uint64_t* state) {
  const auto size = static_cast<uint64_t>(int64_t{high} - low + 1);
  return static_cast<int32_t>(low + static_cast<int64_t>(NextRandom(state) % size));
}

Result<BenchResult> RunLoad(Engine& engine, const std::vector<Load>& load) {
  const auto progress = std::make_shared<Progress>();
  {
    MutexLock lock(progress->mutex);
    progress->times.resize(load.size());
    progress->open = load.size();
  }
  const int64_t steps_before = engine.stats().steps;
  const auto start = SteadyClock::now();
  Status refused;
  for (size_t i = 0; i < load.size(); ++i) {
    Request request;
    request.token_ids = load[i].prompt;
    request.sampling.temperature = 0;
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
  BenchResult result;
  std::vector<double> ttft_ms, tpot_ms;
  double kv_bytes = 0;
  for (size_t i = 0; i < load.size(); ++i) {
    const Times& times = progress->times[i];
    result.input_tokens += static_cast<int64_t>(load[i].prompt.size());
    result.output_tokens += times.tokens;
    result.seconds = std::max(result.seconds, times.last);
    kv_bytes += DecodeKvBytes(load[i], times, model);
    ttft_ms.push_back(times.first * 1e3);
    if (times.tokens > 1) tpot_ms.push_back((times.last - times.first) * 1e3 / (times.tokens - 1));
  }
  result.model = model.name;
  result.backend = model.backend;
  result.device = model.device;
  result.threads = model.threads;
  result.requests = static_cast<int64_t>(load.size());
  result.prompt_tok_s = static_cast<double>(result.input_tokens) / result.seconds;
  result.output_tok_s = static_cast<double>(result.output_tokens) / result.seconds;
  result.ttft_ms = PercentilesOf(std::move(ttft_ms));
  result.tpot_ms = PercentilesOf(std::move(tpot_ms));
  const auto steps = static_cast<double>(engine.stats().steps - steps_before);
  result.weight_gb_s = steps * static_cast<double>(model.weight_bytes) / result.seconds / 1e9;
  result.kv_gb_s = kv_bytes / result.seconds / 1e9;
  result.load_s = model.load_seconds;
  result.peak_rss_mb = PeakRssMb();
  result.peak_device_mb = static_cast<double>(engine.model().device_bytes) / 1e6;
  result.commit = Commit();
  return result;
}

}  // namespace tokamak::cli
