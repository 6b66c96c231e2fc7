// tokamak bench: how fast an engine is, with many requests or with a few.
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "cli/bench_flags.h"
#include "cli/bench_load.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/common.h"

namespace tokamak::cli {
namespace {

constexpr char kThroughputExamples[] =
    "  tokamak bench throughput --requests 64 --input 100:200 --output 50:100 --json\n"
    "  tokamak bench throughput dummy:config.json --threads 2\n";
constexpr char kLatencyExamples[] =
    "  tokamak bench latency --batch 1,8 --prompt-tokens 512 --output-tokens 128 --json\n";

constexpr char kProfileHelp[] =
    "Print the time of every operation and between steps to stderr; with --executor eager on a "
    "GPU, "
    "or a whole decode pass counts as one";

struct ThroughputFlags {
  EngineFlags engine;
  int32_t requests = 256;
  TokenRange input = {100, 1024};
  TokenRange output = {100, 1024};
  int32_t seed = 0;
  bool json = false;
};

struct LatencyFlags {
  EngineFlags engine;
  std::optional<std::vector<int32_t>> batch = std::vector<int32_t>{1, 8, 32};
  int32_t prompt_tokens = 512;
  int32_t output_tokens = 128;
  int32_t runs = 1;
  int32_t seed = 0;
  bool json = false;
};

Result<BenchResult> Throughput(Engine& engine, const ThroughputFlags& flags) {
  auto state = static_cast<uint64_t>(flags.seed);
  std::vector<Load> load(static_cast<size_t>(flags.requests));
  for (Load& one : load) {
    const int32_t input = RandomInRange(flags.input.low, flags.input.high, &state);
    one.output_tokens = RandomInRange(flags.output.low, flags.output.high, &state);
    one.prompt = RandomPrompt(input, engine.model().vocab_size, &state);
  }
  ASSIGN_OR_RETURN(LoadRun run, RunLoad(engine, load));
  return std::move(run.result);
}

int RunThroughput(ThroughputFlags flags) {
  if (flags.requests < 1) return UsageError("--requests must be at least 1");
  EngineOptions& options = flags.engine.options;
  options.max_queue = std::max(options.max_queue, flags.requests);
  Result<std::unique_ptr<Engine>> engine = LoadEngine(flags.engine);
  if (!engine.ok()) return Fail(engine.status());
  const Machine machine((*engine)->model());
  std::fprintf(stderr, "%d requests\n", flags.requests);
  (void)(*engine)->TakeProfile();  // of loading
  Result<BenchResult> result = Throughput(**engine, flags);
  if (!result.ok()) return Fail(result.status());
  result->batch = options.max_seqs;
  machine.Describe(*result);
  PrintBench(*result, flags.json);
  PrintProfile(**engine);
  return kOk;
}

// All requests of a batch have the same shape and start together. The rates of prompts are over the
// time until the last has its first token, those of output over the steps in which all decode.
Result<BenchResult> Latency(Engine& engine, int32_t batch, const LatencyFlags& flags,
                            uint64_t* state) {
  std::vector<Load> load(static_cast<size_t>(batch));
  for (Load& one : load) {
    one.output_tokens = flags.output_tokens;
    one.prompt = RandomPrompt(flags.prompt_tokens, engine.model().vocab_size, state);
  }
  ASSIGN_OR_RETURN(LoadRun run, RunLoad(engine, load));
  BenchResult& result = run.result;
  const Phases& phases = run.phases;
  const ModelInfo& model = engine.model();
  const auto prompts = static_cast<double>(result.input_tokens);
  result.batch = batch;
  result.prompt_tok_s = prompts / phases.prompts_s;
  result.prompt_gmac_s = (prompts * static_cast<double>(model.token_macs) +
                          batch * static_cast<double>(model.logits_macs)) /
                         phases.prompts_s / 1e9;
  const auto steps = static_cast<double>(phases.decode_steps);
  const auto per_second = [&phases](double amount) {
    return phases.decode_s > 0 ? amount / phases.decode_s : 0;
  };
  result.output_tok_s = per_second(steps * batch);
  result.output_gmac_s =
      result.output_tok_s * static_cast<double>(model.token_macs + model.logits_macs) / 1e9;
  result.weight_gb_s = per_second(steps * static_cast<double>(model.weight_bytes) / 1e9);
  result.kv_gb_s = per_second(phases.decode_kv_bytes / 1e9);
  return std::move(run.result);
}

int RunLatency(LatencyFlags flags) {
  if (flags.prompt_tokens < 1 || flags.output_tokens < 1) {
    return UsageError("--prompt-tokens and --output-tokens must be at least 1");
  }
  if (flags.runs < 1) return UsageError("--runs must be at least 1");
  EngineOptions& options = flags.engine.options;
  for (const int32_t batch : *flags.batch) {
    if (batch < 1) return UsageError("--batch: sizes must be at least 1");
    options.max_seqs = std::max(options.max_seqs, batch);
  }
  Result<std::unique_ptr<Engine>> engine = LoadEngine(flags.engine);
  if (!engine.ok()) return Fail(engine.status());
  const Machine machine((*engine)->model());
  auto state = static_cast<uint64_t>(flags.seed);
  // The first request finds cold caches and pages that nobody has touched; it is not measured.
  LatencyFlags warm_up = flags;
  warm_up.output_tokens = std::min(warm_up.output_tokens, 4);
  if (const auto result = Latency(**engine, 1, warm_up, &state); !result.ok()) {
    return Fail(result.status());
  }
  for (const int32_t batch : *flags.batch) {
    for (int32_t run = 0; run < flags.runs; ++run) {
      std::fprintf(stderr, "batch %d\n", batch);
      (void)(*engine)->TakeProfile();  // of what came before
      Result<BenchResult> result = Latency(**engine, batch, flags, &state);
      if (!result.ok()) return Fail(result.status());
      machine.Describe(*result);
      PrintBench(*result, flags.json);
      PrintProfile(**engine);
    }
  }
  return kOk;
}

}  // namespace

void AddBenchCommands(CommandLine& line) {
  auto throughput = std::make_shared<ThroughputFlags>();
  Flags t = line.Command("bench throughput", "Measure many requests at once", kThroughputExamples,
                         [throughput] { return RunThroughput(*throughput); });
  t.Add("--requests", throughput->requests, "How many");
  AddRange(t, "--input", throughput->input, "Prompt tokens of each, uniform");
  AddRange(t, "--output", throughput->output, "Generated tokens of each, uniform");
  t.Add("--seed", throughput->seed, "Of lengths and prompts");
  t.Add("--json", throughput->json, "Print one JSON object");
  t.Add("--profile", throughput->engine.options.profile, kProfileHelp);
  AddEngineFlags(t, throughput->engine);

  auto latency = std::make_shared<LatencyFlags>();
  Flags l = line.Command("bench latency", "Measure a few requests at a time", kLatencyExamples,
                         [latency] { return RunLatency(*latency); });
  l.Add("--batch", latency->batch, "Batch sizes, one after the other (default 1,8,32)");
  l.Add("--prompt-tokens", latency->prompt_tokens, "Of each request");
  l.Add("--output-tokens", latency->output_tokens, "Of each request");
  l.Add("--runs", latency->runs, "How often each batch size is measured");
  l.Add("--seed", latency->seed, "Of the prompts");
  l.Add("--json", latency->json, "Print one JSON object per run");
  l.Add("--profile", latency->engine.options.profile, kProfileHelp);
  AddEngineFlags(l, latency->engine);
}

}  // namespace tokamak::cli
