// Microbenchmarks of the host sampler: time per row of logits, by parameters and vocabulary size.
//
//   sampling_bench --benchmark_filter='plain/49152'
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/thread_pool.h"
#include "ops/sampling/host_sampler.h"

namespace tokamak {
namespace {

class NoStream final : public Stream {};

// Logits like a language model's: normally distributed noise and a few likely tokens.
std::vector<float> ModelLikeLogits(int32_t vocab_size) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(static_cast<size_t>(vocab_size));
  for (float& x : logits) x = normal(random);
  for (int i = 0; i < 20; ++i) logits[random() % logits.size()] = 14 - 0.4f * static_cast<float>(i);
  return logits;
}

void Sample(benchmark::State& state, SamplingParams params) {
  const auto vocab_size = static_cast<int32_t>(state.range(0));
  ThreadPool pool(1);
  NoStream stream;
  const auto sampler =
      MakeHostSampler({.max_seqs = 1, .max_rows = 1, .vocab_size = vocab_size}, &pool);
  std::vector<TokenId> history(500);
  for (size_t i = 0; i < history.size(); ++i) history[i] = static_cast<TokenId>(i * 7);
  params.seed = 1;
  sampler->Admit(0, params, /*choice=*/0, history, 250, stream);
  const std::vector<float> logits = ModelLikeLogits(vocab_size);
  std::vector<float> row = logits;
  SampleResult result;
  SampleRow where{.slot = 0, .position = 500};
  for (auto _ : state) {
    std::memcpy(row.data(), logits.data(), logits.size() * sizeof(float));
    sampler->Sample(Tensor(row.data(), DType::kF32, Shape{1, vocab_size}), {&where, 1}, {},
                    {&result, 1}, stream);
    ++where.position;
  }
  state.SetItemsProcessed(state.iterations());
}

void Register(const char* name, const SamplingParams& params) {
  benchmark::RegisterBenchmark(name, Sample, params)
      ->Arg(49152)
      ->Arg(262144)
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace
}  // namespace tokamak

int main(int argc, char** argv) {
  using tokamak::Register;
  Register("greedy", {.temperature = 0});
  Register("greedy_logprobs", {.temperature = 0, .logprobs = 20});
  Register("plain", {});
  Register("hot", {.temperature = 10});
  Register("top_k", {.top_k = 40});
  Register("top_p", {.top_p = 0.95f});
  Register("hot_top_p", {.temperature = 10, .top_p = 0.95f});
  Register("min_p", {.min_p = 0.05f});
  Register("typical_p", {.typical_p = 0.9f});
  Register("top_n_sigma", {.top_n_sigma = 1.0f});
  Register("dynatemp", {.dynatemp_range = 0.5f});
  Register("xtc", {.xtc_probability = 1.0f});
  Register("all", {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f, .repetition_penalty = 1.1f});
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
