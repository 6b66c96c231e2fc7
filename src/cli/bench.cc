// tokamak bench: the speed of an engine, with many requests or with few.
#include <cstdio>
#include <memory>

#include "base/error.h"
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
    "Print the mean time of a step of each kind (decode, prefill, mixed) to stderr: operations, "
    "gaps, and how long the host is busy. On GPUs a decode step is one CUDA graph: --cuda-graphs "
    "off shows its operations, but makes the host busier";

constexpr char kRoutingHelp[] =
    "Which experts an MoE layer sends a token to: model, those of its router; uniform, random ones "
    "with equal weights, because the routers of random weights are skewed";

constexpr char kAcceptanceHelp[] =
    "Give every row --draft-tokens drafts, and accept each with this probability (0 to 1) if those "
    "before it are; answers then mean nothing";

constexpr char kTemperatureHelp[] =
    "Temperature of the requests; 0 always takes the most likely token, which costs least";

// A range of numbers of tokens that includes both ends.
struct TokenRange {
  int32_t low = 0, high = 0;
};

struct ThroughputFlags {
  EngineOptions engine;
  int32_t requests = 256;
  TokenRange input = {100, 1024};
  TokenRange output = {100, 1024};
  float temperature = 0;
  int32_t seed = 0;
  ReportFlags report;
};

struct LatencyFlags {
  EngineOptions engine;
  std::optional<std::vector<int32_t>> batch = std::vector<int32_t>{1, 8, 32};
  int32_t prompt_tokens = 512;
  int32_t output_tokens = 128;
  int32_t runs = 1;
  float temperature = 0;
  int32_t seed = 0;
  ReportFlags report;
};

void SetProfile(const ReportFlags& report, EngineOptions& options) {
  options.profile_events = !report.trace.empty();
  options.profile = report.profile || options.profile_events;
}

Result<BenchResult> Throughput(Engine& engine, const ThroughputFlags& flags) {
  loadgen::Random random(static_cast<uint64_t>(flags.seed));
  std::vector<Load> load(static_cast<size_t>(flags.requests));
  for (Load& one : load) {
    const int32_t input = random.InRange(flags.input.low, flags.input.high);
    one.output_tokens = random.InRange(flags.output.low, flags.output.high);
    one.temperature = flags.temperature;
    one.prompt = RandomPrompt(input, engine.model().vocab_size, random);
  }
  ASSIGN_OR_RETURN(LoadRun run, RunLoad(engine, load));
  return std::move(run.result);
}

Result<std::unique_ptr<Engine>> LoadForBench(EngineOptions options) {
  if (options.synthetic_acceptance) {
    if (!options.record_path.empty()) {
      return InvalidArgument("--record: `tokamak replay` has no --synthetic-acceptance");
    }
    options.speculate = options.draft_model.empty() ? Speculation::kNgram : Speculation::kDraft;
    std::fprintf(stderr, "drafts: %d for every row, each accepted with probability %g\n",
                 options.draft_tokens, static_cast<double>(*options.synthetic_acceptance));
  }
  if (!options.uniform_routing) return LoadEngine(options);
  if (!options.record_path.empty()) {
    return InvalidArgument("--record: `tokamak replay` has no --routing uniform");
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, LoadEngine(options));
  if (engine->model().expert_bytes == 0) {
    return InvalidArgument("--routing uniform: {} has no experts", engine->model().name);
  }
  std::fprintf(stderr, "routing: every MoE layer chooses its experts uniformly at random\n");
  return engine;
}

Status MeasureThroughput(const ThroughputFlags& flags) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadForBench(flags.engine));
  ASSIGN_OR_RETURN(Reporter reporter, Reporter::Create(*engine, flags.report));
  std::fprintf(stderr, "%d requests\n", flags.requests);
  reporter.Begin();
  ASSIGN_OR_RETURN(BenchResult result, Throughput(*engine, flags));
  result.batch = engine->model().max_seqs;
  result.uniform_routing = flags.engine.uniform_routing;
  reporter.Report(std::move(result), "throughput");
  return reporter.Finish();
}

int RunThroughput(ThroughputFlags flags) {
  if (flags.requests < 1) return UsageError("--requests must be at least 1");
  EngineOptions& options = flags.engine;
  options.max_queue = std::max(options.max_queue, flags.requests);
  SetProfile(flags.report, options);
  const Status status = MeasureThroughput(flags);
  return status.ok() ? kOk : Fail(status);
}

// All requests of a batch have the same shape and start together. Prompt rates are measured until
// the last request has its first token, output rates over the steps in which all requests decode.
Result<BenchResult> Latency(Engine& engine, int32_t batch, const LatencyFlags& flags,
                            loadgen::Random& random) {
  std::vector<Load> load(static_cast<size_t>(batch));
  for (Load& one : load) {
    one.output_tokens = flags.output_tokens;
    one.temperature = flags.temperature;
    one.prompt = RandomPrompt(flags.prompt_tokens, engine.model().vocab_size, random);
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
  // Each accepted draft saves a request a step.
  const double steps = static_cast<double>(phases.decode_steps) *
                       (1 - static_cast<double>(result.accepted_drafts) /
                                static_cast<double>(std::max<int64_t>(1, result.output_tokens)));
  const auto per_second = [&phases](double amount) {
    return phases.decode_s > 0 ? amount / phases.decode_s : 0;
  };
  result.output_tok_s = per_second(static_cast<double>(phases.decode_tokens));
  result.output_gmac_s =
      result.output_tok_s * static_cast<double>(model.token_macs + model.logits_macs) / 1e9;
  result.weight_gb_s = per_second(steps * StepWeightBytes(model, batch) / 1e9);
  result.kv_gb_s = per_second(phases.decode_kv_bytes / 1e9);
  return std::move(run.result);
}

Status MeasureLatency(const LatencyFlags& flags) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadForBench(flags.engine));
  ASSIGN_OR_RETURN(Reporter reporter, Reporter::Create(*engine, flags.report));
  loadgen::Random random(static_cast<uint64_t>(flags.seed));
  // The first request is not measured: its caches are cold and its pages untouched.
  LatencyFlags warm_up = flags;
  warm_up.output_tokens = std::min(warm_up.output_tokens, 4);
  RETURN_IF_ERROR(Latency(*engine, 1, warm_up, random).status());
  for (const int32_t batch : *flags.batch) {
    for (int32_t run = 0; run < flags.runs; ++run) {
      std::fprintf(stderr, "batch %d\n", batch);
      reporter.Begin();
      ASSIGN_OR_RETURN(BenchResult result, Latency(*engine, batch, flags, random));
      result.uniform_routing = flags.engine.uniform_routing;
      reporter.Report(std::move(result), fmt::format("batch {}", batch));
    }
  }
  return reporter.Finish();
}

int RunLatency(LatencyFlags flags) {
  if (flags.prompt_tokens < 1 || flags.output_tokens < 1) {
    return UsageError("--prompt-tokens and --output-tokens must be at least 1");
  }
  if (flags.runs < 1) return UsageError("--runs must be at least 1");
  EngineOptions& options = flags.engine;
  for (const int32_t batch : *flags.batch) {
    if (batch < 1) return UsageError("--batch: every size must be at least 1");
    options.max_seqs = std::max(options.max_seqs, batch);
  }
  SetProfile(flags.report, options);
  const Status status = MeasureLatency(flags);
  return status.ok() ? kOk : Fail(status);
}

Status ParseRange(const std::string& text, TokenRange* range) {
  std::string list = text;
  if (const size_t colon = list.find(':'); colon != std::string::npos) list[colon] = ',';
  const Result<std::vector<int32_t>> ends = ParseIntList(list);
  const bool valid = ends.ok() && (ends->size() == 1 || ends->size() == 2) && ends->front() >= 1 &&
                     ends->front() <= ends->back();
  if (!valid) {
    return InvalidArgument("\"{}\" is not a number or range of tokens such as 100 or 100:1024",
                           text);
  }
  *range = {ends->front(), ends->back()};
  return Status();
}

// Takes "LOW:HIGH" or one number, each at least 1. `range` holds the default.
void AddRange(Flags& flags, const std::string& name, TokenRange& range, const std::string& help) {
  const std::string standard = range.low == range.high
                                   ? fmt::format("{}", range.low)
                                   : fmt::format("{}:{}", range.low, range.high);
  flags.AddParsed(
      name, "LOW:HIGH", [&range](const std::string& text) { return ParseRange(text, &range); },
      fmt::format("{} (default {})", help, standard));
}

Status ParseRouting(const std::string& text, bool* uniform) {
  if (text != "model" && text != "uniform") {
    return InvalidArgument("must be model or uniform, got \"{}\"", text);
  }
  *uniform = text == "uniform";
  return Status();
}

void AddRouting(Flags& flags, EngineOptions& options) {
  flags.AddParsed(
      "--routing", "model|uniform",
      [&options](const std::string& text) { return ParseRouting(text, &options.uniform_routing); },
      fmt::format("{} (default model)", kRoutingHelp));
}

// Adds flags for what only benchmarks may do to a model.
void AddBenchFlags(Flags& flags, EngineOptions& options) {
  AddRouting(flags, options);
  flags.Add("--synthetic-acceptance", options.synthetic_acceptance, kAcceptanceHelp);
}

void AddReportFlags(Flags& flags, ReportFlags& report, const std::string& json_help) {
  flags.Add("--json", report.json, json_help);
  flags.Add("--profile", report.profile, kProfileHelp);
  flags.Add("--trace", report.trace,
            "Write every step and operation to this file, for chrome://tracing or ui.perfetto.dev");
}

}  // namespace

void AddBenchCommands(CommandLine& line) {
  auto throughput = std::make_shared<ThroughputFlags>();
  // Greedy answers to random prompts repeat themselves more than others.
  throughput->engine.speculate = Speculation::kOff;
  Flags t = line.Command("bench throughput", "Measure many requests at once", kThroughputExamples,
                         [throughput] { return RunThroughput(*throughput); });
  t.Add("--requests", throughput->requests, "Number of requests");
  AddRange(t, "--input", throughput->input, "Prompt tokens of each request, drawn uniformly");
  AddRange(t, "--output", throughput->output, "Generated tokens of each request, drawn uniformly");
  t.Add("--temperature", throughput->temperature, kTemperatureHelp);
  t.Add("--seed", throughput->seed, "Seed of the lengths and prompts");
  AddBenchFlags(t, throughput->engine);
  AddReportFlags(t, throughput->report, "Print one JSON object");
  AddEngineFlags(t, throughput->engine);

  auto latency = std::make_shared<LatencyFlags>();
  latency->engine.speculate = Speculation::kOff;
  Flags l = line.Command("bench latency", "Measure a few requests at a time", kLatencyExamples,
                         [latency] { return RunLatency(*latency); });
  l.Add("--batch", latency->batch, "Batch sizes, one after the other (default 1,8,32)");
  l.Add("--prompt-tokens", latency->prompt_tokens, "Prompt tokens of each request");
  l.Add("--output-tokens", latency->output_tokens, "Generated tokens of each request");
  l.Add("--runs", latency->runs, "Runs of each batch size");
  l.Add("--temperature", latency->temperature, kTemperatureHelp);
  l.Add("--seed", latency->seed, "Seed of the prompts");
  AddBenchFlags(l, latency->engine);
  AddReportFlags(l, latency->report, "Print one JSON object per run");
  AddEngineFlags(l, latency->engine);
}

}  // namespace tokamak::cli
