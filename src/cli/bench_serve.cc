// tokamak bench serve: a load generator for any OpenAI-compatible server.
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/json/json_value.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "loadgen/load.h"
#include "loadgen/plot.h"
#include "server/access/api_keys.h"

namespace tokamak::cli {
namespace {

constexpr char kExamples[] =
    "  tokamak bench serve --url http://127.0.0.1:8080 --concurrency 16 --shared-prefix 880\n"
    "  tokamak bench serve --url http://127.0.0.1:8080 --rate 1,2,4,8 --duration 60 \\\n"
    "    --input lognormal:400:300 --slo ttft=500,tpot=50 --plot latency.svg\n"
    "  tokamak bench serve --url http://127.0.0.1:8080 --concurrency 8 --turns 2:6 --json\n";

constexpr double kMaxSeconds = 1e6;
constexpr int32_t kMaxWarmup = 10'000;
constexpr double kLineEverySeconds = 10;  // between progress lines if stderr is not a terminal

struct ServeBenchFlags {
  std::string url, endpoint = "chat", model;
  std::string api_key_file, api_key_env;
  std::string ca_file;
  bool insecure = false, no_keep_alive = false;
  std::vector<int32_t> concurrency;
  std::vector<double> rates;
  double burstiness = 1;
  std::string replay;
  double speed = 1;
  std::optional<int32_t> requests;
  double duration = 0, ramp = 0;
  int32_t warmup = 0;
  loadgen::WorkloadOptions workload;
  double timeout_seconds = 600, request_timeout = 0;
  std::string extra_body;
  loadgen::Slo slo;
  bool json = false;
  std::string plot, trace;
};

// The loads of one command, made from its flags by Check.
struct Loads {
  loadgen::LoadSpec base;
  std::vector<loadgen::LoadPattern> patterns;
  std::vector<std::vector<loadgen::ReplayedRequest>> replayed;  // one per pattern, or none
};

using FilePointer = std::unique_ptr<FILE, int (*)(FILE*)>;

Result<FilePointer> OpenFile(const std::string& path) {
  FilePointer file(std::fopen(path.c_str(), "w"), &std::fclose);
  if (file == nullptr) return NotFound("{}: cannot open the file for writing", path);
  return file;
}

Status CloseFile(FilePointer file, const std::string& path) {
  const bool failed = std::ferror(file.get()) != 0;
  if (std::fclose(file.release()) == 0 && !failed) return Status();
  return DataLoss("{}: writing failed; is the disk full?", path);
}

// Writes a file completely or not at all: to a temporary file next to it, which is then renamed.
// Paths that are not files, such as /dev/stdout, are written directly.
class WholeFile {
 public:
  ~WholeFile() {
    if (file_ && part_ != path_) ::unlink(part_.c_str());
  }

  Status Open(const std::string& path) {
    struct stat found = {};
    const bool special = ::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode);
    path_ = path;
    part_ = special ? path : path + ".part";
    ASSIGN_OR_RETURN(file_, OpenFile(part_));
    return Status();
  }
  Status Write(const std::string& text) {
    std::fputs(text.c_str(), file_.get());
    RETURN_IF_ERROR(CloseFile(std::move(file_), part_));
    if (part_ == path_ || std::rename(part_.c_str(), path_.c_str()) == 0) return Status();
    return NotFound("{}: cannot rename the file to {}", part_, path_);
  }

 private:
  std::string path_, part_;
  FilePointer file_{nullptr, &std::fclose};
};

Result<std::string> ReadKey(const ServeBenchFlags& flags) {
  if (!flags.api_key_file.empty() && !flags.api_key_env.empty()) {
    return InvalidArgument("give either --api-key-file or --api-key-env, not both");
  }
  if (!flags.api_key_env.empty()) {
    const char* key = std::getenv(flags.api_key_env.c_str());
    if (key == nullptr || *key == '\0') {
      return InvalidArgument("--api-key-env: the environment variable {} is not set",
                             flags.api_key_env);
    }
    return std::string(key);
  }
  if (flags.api_key_file.empty()) return std::string();
  ASSIGN_OR_RETURN(const std::string text, ReadText(flags.api_key_file));
  const Result<std::vector<KeyLine>> keys = KeysIn(text);
  if (!keys.ok()) return keys.status().WithContext("--api-key-file " + flags.api_key_file);
  if (keys->empty()) {
    return InvalidArgument("--api-key-file {}: the file contains no key", flags.api_key_file);
  }
  return std::string(keys->front().key);
}

Status CheckNumbers(const ServeBenchFlags& f) {
  if (f.requests && *f.requests < 1) return InvalidArgument("--requests must be at least 1");
  const struct {
    const char* name;
    double value, low, high;
  } ranges[] = {{"--duration", f.duration, 0, kMaxSeconds},
                {"--ramp", f.ramp, 0, kMaxSeconds},
                {"--warmup", static_cast<double>(f.warmup), 0, kMaxWarmup},
                {"--burstiness", f.burstiness, 0.01, 1000},
                {"--speed", f.speed, 1e-3, 1e6},
                {"--shared-prefix", static_cast<double>(f.workload.shared_prefix), 0,
                 loadgen::LengthDistribution::kMax},
                {"--prefix-groups", static_cast<double>(f.workload.prefix_groups), 1, 10'000},
                {"--think-seconds", f.workload.think_seconds, 0, kMaxSeconds},
                {"--request-timeout", f.request_timeout, 0, kMaxSeconds}};
  for (const auto& [name, value, low, high] : ranges) {
    if (!(value >= low && value <= high)) {
      return InvalidArgument("{} must be in [{}, {}]", name, low, high);
    }
  }
  if (f.duration > 0 && f.ramp >= f.duration) {
    return InvalidArgument("--ramp must be less than --duration");
  }
  if (!(f.timeout_seconds > 0 && f.timeout_seconds <= kMaxSeconds)) {
    return InvalidArgument("--timeout-seconds must be in (0, 1000000]");
  }
  return Status();
}

Result<Loads> Check(const ServeBenchFlags& flags) {
  Loads loads;
  const int kinds = !flags.concurrency.empty() + !flags.rates.empty() + !flags.replay.empty();
  if (kinds != 1) return InvalidArgument("give exactly one of --rate, --concurrency and --replay");
  const std::string kind = std::filesystem::path(flags.plot).extension();
  if (!kind.empty() && kind != ".svg") {
    return InvalidArgument("--plot writes SVG, not {}: give a file name that ends in .svg", kind);
  }
  RETURN_IF_ERROR(CheckNumbers(flags));
  if (flags.endpoint != "chat" && flags.endpoint != "completions") {
    return InvalidArgument("--endpoint must be chat or completions, got \"{}\"", flags.endpoint);
  }
  for (const int32_t concurrency : flags.concurrency) {
    loads.patterns.push_back({.concurrency = concurrency});
  }
  for (const double rate : flags.rates) {
    loads.patterns.push_back({.rate = rate, .burstiness = flags.burstiness});
  }
  if (!flags.replay.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadText(flags.replay));
    auto replayed = loadgen::ParseReplay(text);
    if (!replayed.ok()) return replayed.status().WithContext("--replay " + flags.replay);
    loads.replayed = *std::move(replayed);
    for (std::vector<loadgen::ReplayedRequest>& load : loads.replayed) {
      for (loadgen::ReplayedRequest& request : load) request.time /= flags.speed;
      const auto gaps = static_cast<double>(load.size() - 1);
      loads.patterns.push_back({.rate = gaps > 0 ? gaps / std::max(load.back().time, 1e-6) : 0});
    }
  }
  loadgen::LoadSpec& base = loads.base;
  Result<Url> url = ParseUrl(flags.url);
  if (!url.ok()) return url.status().WithContext("--url " + flags.url);
  base.url = *std::move(url);
  std::string& target = base.url.target;
  while (target.ends_with('/')) target.pop_back();
  if (target.ends_with("/v1")) target.resize(target.size() - 3);
  ASSIGN_OR_RETURN(base.api_key, ReadKey(flags));
  base.shape = {
      .chat = flags.endpoint == "chat", .model = flags.model, .extra_body = flags.extra_body};
  base.workload = flags.workload;
  const bool otherwise_limited = flags.duration > 0 || !flags.replay.empty();
  base.requests = flags.requests.value_or(otherwise_limited ? 0 : 64);
  base.duration_seconds = flags.duration;
  base.connection = {.timeout_seconds = flags.timeout_seconds,
                     .ca_file = flags.ca_file,
                     .insecure = flags.insecure,
                     .keep_alive = !flags.no_keep_alive};
  if ((flags.insecure || !flags.ca_file.empty()) && !base.url.tls) {
    return InvalidArgument("--ca and --insecure need a --url that begins with https://");
  }
  base.request_seconds = flags.request_timeout;
  return loads;
}

// Shows the progress of a load: on a terminal one line that is overwritten, otherwise a line now
// and then.
class Progress {
 public:
  explicit Progress(std::string name) : name_(std::move(name)) {}
  ~Progress() {
    if (terminal_) std::fprintf(stderr, "\r\033[K");
  }

  void Show(const loadgen::LoadProgress& now, const loadgen::Summary& summary) {
    if (!terminal_ && now.seconds < next_) return;
    next_ = now.seconds + kLineEverySeconds;
    const double tokens = static_cast<double>(summary.output_tokens());
    std::fprintf(stderr, "%s%s: %.0f s, %d done, %d failed, %lld running, %.1f tok/s%s",
                 terminal_ ? "\r\033[K" : "", name_.c_str(), now.seconds,
                 summary.ended() - summary.errors(), summary.errors(),
                 static_cast<long long>(now.running), tokens / std::max(now.seconds, 1e-9),
                 terminal_ ? "" : "\n");
    std::fflush(stderr);
  }

 private:
  const bool terminal_ = ::isatty(STDERR_FILENO) != 0;
  const std::string name_;
  double next_ = kLineEverySeconds;
};

// Runs the loads of one command one after the other.
class ServeBench {
 public:
  ServeBench(const ServeBenchFlags& flags, Loads loads) : flags_(flags), loads_(std::move(loads)) {}

  int Run();

 private:
  Status AskForModel();
  Status WarmUp();
  Result<loadgen::LoadResult> RunOne(size_t index);
  loadgen::LoadDescription Describe(const loadgen::LoadPattern& pattern) const;
  Status OpenFiles();
  Status CloseFiles();
  int Verdict() const;

  const ServeBenchFlags& flags_;
  Loads loads_;
  InterruptFlag interrupt_;
  std::string owned_by_;
  FilePointer trace_{nullptr, &std::fclose};
  WholeFile plot_;
  std::vector<loadgen::LoadResult> results_;
};

// Opens files before any load, so that a missing folder costs no measurement.
Status ServeBench::OpenFiles() {
  if (!flags_.trace.empty()) {
    ASSIGN_OR_RETURN(trace_, OpenFile(flags_.trace));
  }
  return flags_.plot.empty() ? Status() : plot_.Open(flags_.plot);
}

Status ServeBench::CloseFiles() {
  if (!flags_.plot.empty() && !results_.empty()) {
    RETURN_IF_ERROR(plot_.Write(loadgen::LatencyPlot(results_)));
  }
  return trace_ ? CloseFile(std::move(trace_), flags_.trace) : Status();
}

// Ignores errors, because the requests themselves will meet them.
Status ServeBench::AskForModel() {
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpCaller> caller,
                   HttpCaller::Create(loads_.base.url, loads_.base.connection));
  const loadgen::ServedModel served = loadgen::AskForModel(*caller, loads_.base.api_key);
  owned_by_ = served.owned_by;
  if (loads_.base.shape.model.empty()) loads_.base.shape.model = served.id;
  return Status();
}

Status ServeBench::WarmUp() {
  if (flags_.warmup == 0) return Status();
  loadgen::LoadSpec load = loads_.base;
  load.pattern = {.concurrency = 1};
  load.requests = flags_.warmup;
  load.duration_seconds = 0;
  load.run = UINT64_MAX;  // its words differ from those of the measured loads
  std::string failure;
  loadgen::LoadObserver observer;
  observer.on_record = [&](const loadgen::RequestRecord& record) {
    if (!record.ok() && failure.empty()) failure = record.error;
  };
  observer.go_on = [&](const loadgen::LoadProgress&) {
    return !interrupt_.raised() && failure.empty();
  };
  ASSIGN_OR_RETURN(const loadgen::LoadTotals totals, loadgen::RunLoad(load, observer));
  (void)totals;
  if (!failure.empty()) return Unavailable("a warm-up request failed: {}", failure);
  return Status();
}

loadgen::LoadDescription ServeBench::Describe(const loadgen::LoadPattern& pattern) const {
  return {.url = flags_.url,
          .endpoint = flags_.endpoint,
          .model = loads_.base.shape.model,
          .owned_by = owned_by_,
          .pattern = pattern,
          .workload = flags_.workload,
          .replayed = flags_.replay,
          .ramp_seconds = flags_.ramp,
          .duration_seconds = flags_.duration};
}

Result<loadgen::LoadResult> ServeBench::RunOne(size_t index) {
  loadgen::LoadSpec load = loads_.base;
  load.pattern = loads_.patterns[index];
  if (!loads_.replayed.empty()) load.pattern.replayed = &loads_.replayed[index];
  load.run = index;
  loadgen::Summary summary(Describe(load.pattern), flags_.slo);
  loadgen::LoadObserver observer;
  observer.on_record = [&](const loadgen::RequestRecord& record) {
    summary.Add(record);
    if (!trace_) return;
    const std::string line = loadgen::TraceLine(record, static_cast<int32_t>(index));
    std::fprintf(trace_.get(), "%s\n", line.c_str());
  };
  Progress progress(fmt::format("load {} of {}", index + 1, loads_.patterns.size()));
  observer.go_on = [&](const loadgen::LoadProgress& now) {
    progress.Show(now, summary);
    return !interrupt_.raised();
  };
  ASSIGN_OR_RETURN(const loadgen::LoadTotals totals, loadgen::RunLoad(load, observer));
  return summary.Finish(static_cast<int32_t>(totals.cancelled), totals.seconds, totals.cpu_seconds);
}

int ServeBench::Run() {
  Status status = OpenFiles();
  if (status.ok()) status = AskForModel();
  if (status.ok()) status = WarmUp();
  if (!status.ok()) return Fail(status);
  for (size_t i = 0; i < loads_.patterns.size() && !interrupt_.raised(); ++i) {
    Result<loadgen::LoadResult> result = RunOne(i);
    status = result.status();
    if (!status.ok()) break;
    std::fputs(loadgen::ClientWarning(*result).c_str(), stderr);
    std::printf(
        "%s%s",
        flags_.json ? loadgen::ResultJson(*result).c_str() : loadgen::ResultText(*result).c_str(),
        flags_.json ? "\n" : "");
    std::fflush(stdout);
    results_.push_back(*std::move(result));
  }
  if (!flags_.json && results_.size() > 1) {
    std::printf("\n%s", loadgen::ResultTable(results_).c_str());
    std::fflush(stdout);
  }
  const Status closed = CloseFiles();
  if (!status.ok() || !closed.ok()) return Fail(status.ok() ? closed : status);
  return interrupt_.raised() ? kInterrupted : Verdict();
}

int ServeBench::Verdict() const {
  int32_t errors = 0, requests = 0;
  std::string first;
  for (const loadgen::LoadResult& result : results_) {
    errors += result.errors;
    requests += result.requests;
    if (first.empty()) first = result.first_error;
  }
  if (errors == 0) return kOk;
  return Fail(
      Internal("{} of {} requests failed, the first one with: {}", errors, requests, first));
}

int Run(const ServeBenchFlags& flags) {
  Result<Loads> loads = Check(flags);
  if (!loads.ok()) return UsageError(loads.status().message());
  return ServeBench(flags, *std::move(loads)).Run();
}

void AddLength(Flags& flags, const std::string& name, loadgen::LengthDistribution& length,
               const std::string& help) {
  const auto parse = [&length](const std::string& text) -> Status {
    ASSIGN_OR_RETURN(length, loadgen::LengthDistribution::Parse(text));
    return Status();
  };
  flags.AddParsed(name, "LENGTH", parse, fmt::format("{} (default {})", help, length.text()));
}

Status ParseRates(const std::string& text, std::vector<double>* rates) {
  rates->clear();
  for (const std::string_view part : Split(text, ',')) {
    const std::string piece(part);
    char* end = nullptr;
    const double rate = std::strtod(piece.c_str(), &end);
    if (piece.empty() || *end != '\0' || !(rate >= 1e-6 && rate <= 1e6)) {
      return InvalidArgument("\"{}\" is not a list of rates in [0.000001, 1000000] such as 1,2,4",
                             text);
    }
    rates->push_back(rate);
  }
  return Status();
}

Status ParseConcurrency(const std::string& text, std::vector<int32_t>* list) {
  ASSIGN_OR_RETURN(*list, ParseIntList(text));
  for (const int32_t concurrency : *list) {
    if (concurrency < 1 || concurrency > 100'000) list->clear();
    if (list->empty()) break;
  }
  return list->empty() ? InvalidArgument(
                             "\"{}\" is not a list of integers in [1, 100000] such as 1,4,16", text)
                       : Status();
}

Status ParseBody(const std::string& text, std::string* body) {
  const std::optional<JsonValue> json = JsonValue::Parse(text, {});
  if (!json || !json->is_object()) {
    return InvalidArgument("\"{}\" is not a JSON object", text);
  }
  *body = text;
  return Status();
}

void AddLoadFlags(Flags& f, ServeBenchFlags& flags) {
  f.Group("Load");
  f.AddParsed(
      "--rate", "R,R,...", [&](const std::string& text) { return ParseRates(text, &flags.rates); },
      "Conversations that begin per second, at random times, however many are running; a list "
      "measures one load after the other");
  f.Add("--burstiness", flags.burstiness,
        "Spacing of the arrivals of --rate: 1 is a Poisson process, less is burstier, more is more "
        "even");
  f.AddParsed(
      "--concurrency", "N,N,...",
      [&](const std::string& text) { return ParseConcurrency(text, &flags.concurrency); },
      "Conversations at a time: one begins when another ends; a list as for --rate");
  f.Add("--replay", flags.replay,
        "A trace of arrivals and lengths: JSON lines with time, input, output and load, as --trace "
        "writes them, or timestamp, input_length and output_length");
  f.Add("--speed", flags.speed, "Replay the arrivals this many times faster");
  f.Add("--requests", flags.requests,
        "Conversations in each load (default 64; no limit with --duration or --replay)");
  f.Add("--duration", flags.duration,
        "Seconds after which a load begins no more requests; rates count what ends within them. 0: "
        "no limit, and rates count everything until the last success");
  f.Add("--ramp", flags.ramp, "Seconds at the beginning of each load that are not measured");
  f.Add("--warmup", flags.warmup,
        "Requests sent before the first load, one at a time, that are not measured");
}

void AddWorkloadFlags(Flags& f, loadgen::WorkloadOptions& workload) {
  f.Group("Requests");
  AddLength(f, "--input", workload.input,
            "Words of each prompt, about a token each: 100, 100:1024, normal:MEAN:SD or "
            "lognormal:MEAN:SD");
  AddLength(f, "--output", workload.output, "Tokens of each answer, in the same forms");
  f.Add("--shared-prefix", workload.shared_prefix,
        "Words that all conversations begin with, the same in every run");
  f.Add("--prefix-groups", workload.prefix_groups,
        "Number of different shared prefixes; each conversation has one of them");
  AddLength(f, "--turns", workload.turns,
            "Requests of each conversation, at most 1000; each one sends all earlier messages");
  f.Add("--think-seconds", workload.think_seconds,
        "Mean time from an answer to the next turn, exponentially distributed");
  f.Add("--seed", workload.seed, "Seed of the lengths, words and arrivals");
}

}  // namespace

void AddBenchServeCommand(CommandLine& line) {
  auto flags = std::make_shared<ServeBenchFlags>();
  Flags f = line.Command("bench serve", "Measure an OpenAI-compatible server", kExamples,
                         [flags] { return Run(*flags); });
  f.AddRequired("--url", flags->url,
                "The server's address, such as http://127.0.0.1:8080, with or without /v1");
  f.Add("--ca", flags->ca_file, "CA certificates (PEM) for https, instead of the system's");
  f.Add("--insecure", flags->insecure, "Do not check the server's certificate");
  f.Add("--no-keep-alive", flags->no_keep_alive, "Make a new connection for each request");
  f.Add("--endpoint", flags->endpoint, "API to use: chat or completions");
  f.Add("--model", flags->model, "Model to request (default: the first one that the server lists)");
  f.Add("--api-key-file", flags->api_key_file,
        "File of API keys, one per line as for serve; the first one is sent");
  f.Add("--api-key-env", flags->api_key_env, "Environment variable that contains the API key");
  f.AddParsed(
      "--body", "JSON",
      [flags](const std::string& text) { return ParseBody(text, &flags->extra_body); },
      "JSON object merged into the body of each request; null removes a member");
  f.Add("--timeout-seconds", flags->timeout_seconds,
        "Seconds without a byte after which a request fails");
  f.Add("--request-timeout", flags->request_timeout,
        "Seconds in all after which a request fails; 0: no limit");
  AddLoadFlags(f, *flags);
  AddWorkloadFlags(f, flags->workload);
  f.Group("Results");
  f.AddParsed(
      "--slo", "ttft=MS,tpot=MS,e2e=MS",
      [flags](const std::string& text) -> Status {
        ASSIGN_OR_RETURN(flags->slo, loadgen::ParseSlo(text));
        return Status();
      },
      "Limits that a request must meet to count for goodput: first token, time per output token, "
      "end to end");
  f.Add("--json", flags->json, "Print one JSON object for each load");
  f.Add("--plot", flags->plot, "Draw latencies and throughput of the loads into this SVG file");
  f.Add("--trace", flags->trace, "Write a JSON object for each request to this file");
}

}  // namespace tokamak::cli
