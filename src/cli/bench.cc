// tokamak bench: how fast an engine is, with many requests or with a few.
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "cli/bench_load.h"
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
    "Print to stderr what a step of each kind (decode, prefill, mixed) takes: every operation, the "
    "gaps, and how much of the time the host is busy. On a GPU the operations of a decode step are "
    "one graph unless --executor eager; only without it is the host's share a true one";

// "100:1024" or "100".
struct Range {
  int32_t low = 0;
  int32_t high = 0;
};

struct ThroughputFlags {
  EngineFlags engine;
  int32_t requests = 256;
  Range input = {100, 1024};
  Range output = {100, 1024};
  int32_t seed = 0;
  bool json = false;
};

struct LatencyFlags {
  EngineFlags engine;
  std::optional<std::vector<int32_t>> batch = std::vector<int32_t>{1, 8, 32};
  int32_t prompt_tokens = 512;
  int32_t output_tokens = 128;
  int32_t seed = 0;
  bool json = false;
};

Status ParseRange(const std::string& text, Range* range) {
  std::string list = text;
  if (const size_t colon = list.find(':'); colon != std::string::npos) list[colon] = ',';
  const Result<std::vector<int32_t>> ends = ParseIntList(list);
  const bool valid = ends.ok() && (ends->size() == 1 || ends->size() == 2) && ends->front() >= 1 &&
                     ends->front() <= ends->back();
  if (!valid) return InvalidArgument("\"{}\" is not a range of tokens such as 100:1024", text);
  *range = {ends->front(), ends->back()};
  return Status();
}

void Print(const BenchResult& r, bool json) {
  if (json) {
    std::printf("%s\n", BenchJson(r).c_str());
  } else {
    std::printf("%s  %s  %d threads  batch %d\n", r.model.c_str(), r.backend.c_str(), r.threads,
                r.batch);
    std::printf("  %lld requests, %lld tokens in, %lld out, %.2f s\n",
                static_cast<long long>(r.requests), static_cast<long long>(r.input_tokens),
                static_cast<long long>(r.output_tokens), r.seconds);
    std::printf("  prompt %.1f tok/s   output %.1f tok/s   weights %.2f GB/s   KV %.2f GB/s\n",
                r.prompt_tok_s, r.output_tok_s, r.weight_gb_s, r.kv_gb_s);
    std::printf("  first token p50 %.1f  p90 %.1f  p99 %.1f ms\n", r.ttft_ms.p50, r.ttft_ms.p90,
                r.ttft_ms.p99);
    std::printf("  per token   p50 %.2f  p90 %.2f  p99 %.2f ms\n", r.tpot_ms.p50, r.tpot_ms.p90,
                r.tpot_ms.p99);
    std::printf("  loaded in %.2f s, peak memory %.0f MB\n", r.load_s, r.peak_rss_mb);
  }
  std::fflush(stdout);
}

// The mean step of a kind.
void PrintSteps(const Profile::Steps& steps) {
  const double whole =
      steps.busy_seconds + steps.inside_steps_seconds + steps.between_steps_seconds;
  if (whole <= 0) return;
  const auto count = static_cast<double>(steps.count);
  const auto line = [&](const char* name, int64_t calls, double seconds) {
    std::fprintf(stderr, "  %-18s %9.1f %11.4f ms %6.1f%%\n", name,
                 static_cast<double>(calls) / count, seconds / count * 1e3, 100 * seconds / whole);
  };
  std::fprintf(stderr, "%s: %lld steps of %.3f ms; calls and time per step\n", steps.kind.c_str(),
               static_cast<long long>(steps.count), whole / count * 1e3);
  for (const Profile::Op& op : steps.ops) line(op.name.c_str(), op.calls, op.seconds);
  line("gaps inside steps", steps.count, steps.inside_steps_seconds);
  line("gaps between steps", steps.count, steps.between_steps_seconds);
  std::fprintf(stderr, "  longest gap between steps %.3f ms\n", steps.longest_gap_seconds * 1e3);
  if (steps.host_seconds <= 0) return;
  const double busy = 1 - steps.host_waiting_seconds / steps.host_seconds;
  std::fprintf(stderr, "  host busy %.1f%% of the time, %.4f ms per step\n", 100 * busy,
               busy * whole / count * 1e3);
}

// What the steps since the last call were spent on; nothing without --profile.
void PrintProfile(Engine& engine) {
  for (const Profile::Steps& steps : engine.TakeProfile().steps) PrintSteps(steps);
}

Result<BenchResult> Throughput(Engine& engine, const ThroughputFlags& flags) {
  auto state = static_cast<uint64_t>(flags.seed);
  std::vector<Load> load(static_cast<size_t>(flags.requests));
  for (Load& one : load) {
    const int32_t input = RandomInRange(flags.input.low, flags.input.high, &state);
    one.output_tokens = RandomInRange(flags.output.low, flags.output.high, &state);
    one.prompt = RandomPrompt(input, engine.model().vocab_size, &state);
  }
  return RunLoad(engine, load);
}

int RunThroughput(ThroughputFlags flags) {
  if (flags.requests < 1) return UsageError("--requests must be at least 1");
  EngineOptions& options = flags.engine.options;
  options.max_queue = std::max(options.max_queue, flags.requests);
  Result<std::unique_ptr<Engine>> engine = LoadEngine(flags.engine);
  if (!engine.ok()) return Fail(engine.status());
  std::fprintf(stderr, "%d requests\n", flags.requests);
  (void)(*engine)->TakeProfile();  // of loading
  Result<BenchResult> result = Throughput(**engine, flags);
  if (!result.ok()) return Fail(result.status());
  result->batch = options.max_seqs;
  Print(*result, flags.json);
  PrintProfile(**engine);
  return kOk;
}

// All requests of a batch have the same shape and start together, so the prompts take until the
// first tokens and the rest is decoding.
Result<BenchResult> Latency(Engine& engine, int32_t batch, const LatencyFlags& flags,
                            uint64_t* state) {
  std::vector<Load> load(static_cast<size_t>(batch));
  for (Load& one : load) {
    one.output_tokens = flags.output_tokens;
    one.prompt = RandomPrompt(flags.prompt_tokens, engine.model().vocab_size, state);
  }
  ASSIGN_OR_RETURN(BenchResult result, RunLoad(engine, load));
  result.batch = batch;
  const double prefill_s = result.ttft_ms.p99 / 1e3;
  const double decode_s = result.seconds - prefill_s;
  if (prefill_s > 0) result.prompt_tok_s = static_cast<double>(result.input_tokens) / prefill_s;
  if (flags.output_tokens > 1 && decode_s > 0) {
    result.output_tok_s = static_cast<double>(result.output_tokens - batch) / decode_s;
  }
  return result;
}

int RunLatency(LatencyFlags flags) {
  if (flags.prompt_tokens < 1 || flags.output_tokens < 1) {
    return UsageError("--prompt-tokens and --output-tokens must be at least 1");
  }
  EngineOptions& options = flags.engine.options;
  for (const int32_t batch : *flags.batch) {
    if (batch < 1) return UsageError("--batch: sizes must be at least 1");
    options.max_seqs = std::max(options.max_seqs, batch);
  }
  Result<std::unique_ptr<Engine>> engine = LoadEngine(flags.engine);
  if (!engine.ok()) return Fail(engine.status());
  auto state = static_cast<uint64_t>(flags.seed);
  for (const int32_t batch : *flags.batch) {
    std::fprintf(stderr, "batch %d\n", batch);
    (void)(*engine)->TakeProfile();  // of loading
    const Result<BenchResult> result = Latency(**engine, batch, flags, &state);
    if (!result.ok()) return Fail(result.status());
    Print(*result, flags.json);
    PrintProfile(**engine);
  }
  return kOk;
}

}  // namespace

void AddBenchCommands(CommandLine& line) {
  auto throughput = std::make_shared<ThroughputFlags>();
  Flags t = line.Command("bench throughput", "Measure many requests at once", kThroughputExamples,
                         [throughput] { return RunThroughput(*throughput); });
  t.Add("--requests", throughput->requests, "How many");
  t.AddParsed(
      "--input", "LOW:HIGH",
      [throughput](const std::string& text) { return ParseRange(text, &throughput->input); },
      "Prompt tokens of each, uniform (default 100:1024)");
  t.AddParsed(
      "--output", "LOW:HIGH",
      [throughput](const std::string& text) { return ParseRange(text, &throughput->output); },
      "Generated tokens of each, uniform (default 100:1024)");
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
  l.Add("--seed", latency->seed, "Of the prompts");
  l.Add("--json", latency->json, "Print one JSON object per batch size");
  l.Add("--profile", latency->engine.options.profile, kProfileHelp);
  AddEngineFlags(l, latency->engine);
}

}  // namespace tokamak::cli
