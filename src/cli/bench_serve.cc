// tokamak bench serve: a load generator for any OpenAI-compatible server.
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "cli/bench_flags.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/serve_load.h"

namespace tokamak::cli {
namespace {

constexpr char kExamples[] =
    "  tokamak bench serve --url http://127.0.0.1:8080 --concurrency 16 --shared-prefix 880\n"
    "  tokamak bench serve --url http://127.0.0.1:8080 --rate 4 --requests 200 --json\n";

struct ServeBenchFlags {
  ServeLoad load;
  std::string url;
  std::string api_key_file;
  std::string endpoint = "chat";
  bool json = false;
};

void Print(const ServeBenchResult& r) {
  std::printf("%d requests, %d of them failed, %.2f s\n", r.requests, r.errors, r.seconds);
  std::printf("  %lld tokens in, %lld of them cached, %lld out\n",
              static_cast<long long>(r.prompt_tokens), static_cast<long long>(r.cached_tokens),
              static_cast<long long>(r.output_tokens));
  std::printf("  output %.1f tok/s   %.2f requests/s\n", r.output_tok_s, r.requests_s);
  const auto line = [](const char* name, const Percentiles& p) {
    std::printf("  %-12s p50 %.1f  p90 %.1f  p99 %.1f ms\n", name, p.p50, p.p90, p.p99);
  };
  line("first token", r.ttft_ms);
  line("inter-token", r.itl_ms);
  line("end to end", r.e2e_ms);
  if (r.without_usage > 0) {
    std::printf("  %d answers without usage: their events count as tokens\n", r.without_usage);
  }
}

Result<ServeLoad> Check(const ServeBenchFlags& flags) {
  ServeLoad load = flags.load;
  if ((load.concurrency > 0) == (load.rate > 0)) {
    return InvalidArgument("name one of --concurrency and --rate, and make it positive");
  }
  if (load.requests < 1) return InvalidArgument("--requests must be at least 1");
  if (load.shared_prefix < 0) return InvalidArgument("--shared-prefix must not be negative");
  if (!(load.timeout_seconds > 0 && load.timeout_seconds <= 1e6)) {
    return InvalidArgument("--timeout-seconds must be in (0, 1000000]");
  }
  if (flags.endpoint != "chat" && flags.endpoint != "completions") {
    return InvalidArgument("--endpoint must be chat or completions, got \"{}\"", flags.endpoint);
  }
  load.chat = flags.endpoint == "chat";
  ASSIGN_OR_RETURN(load.url, ParseUrl(flags.url));
  if (!flags.api_key_file.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadText(flags.api_key_file));
    load.api_key = text.substr(0, text.find_first_of("\r\n"));
  }
  return load;
}

int Run(const ServeBenchFlags& flags) {
  const Result<ServeLoad> load = Check(flags);
  if (!load.ok()) return UsageError(load.status().message());
  const Result<ServeBenchResult> result = RunServeLoad(*load);
  if (!result.ok()) return Fail(result.status());
  if (flags.json) {
    std::printf("%s\n", ServeBenchJson(*result).c_str());
  } else {
    Print(*result);
  }
  std::fflush(stdout);
  if (result->errors == 0) return kOk;
  return Fail(Internal("{} of {} requests failed, the first one with: {}", result->errors,
                       result->requests, result->first_error));
}

}  // namespace

void AddBenchServeCommand(CommandLine& line) {
  auto flags = std::make_shared<ServeBenchFlags>();
  ServeLoad& load = flags->load;
  Flags f = line.Command("bench serve", "Measure an OpenAI-compatible server", kExamples,
                         [flags] { return Run(*flags); });
  f.AddRequired("--url", flags->url, "Of the server, such as http://127.0.0.1:8080");
  f.Add("--concurrency", load.concurrency, "Requests at a time: one begins when another ends");
  f.Add("--rate", load.rate, "Requests per second, arriving at random, however many run");
  f.Add("--requests", load.requests, "How many");
  AddRange(f, "--input", load.input, "Words of each prompt, about a token each, uniform");
  AddRange(f, "--output", load.output, "Tokens of each answer, uniform");
  f.Add("--shared-prefix", load.shared_prefix,
        "Words that all prompts begin with, the same in every run");
  f.Add("--endpoint", flags->endpoint, "chat or completions");
  f.Add("--model", load.model, "Named in the requests; left out: none is");
  f.Add("--api-key-file", flags->api_key_file, "Its first line goes along as the key");
  f.Add("--timeout-seconds", load.timeout_seconds, "A request without a byte for so long fails");
  f.Add("--seed", load.seed, "Of lengths, words and arrivals");
  f.Add("--json", flags->json, "Print one JSON object");
}

}  // namespace tokamak::cli
