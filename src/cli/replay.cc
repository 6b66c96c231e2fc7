// tokamak replay: repeats a recorded run, token for token.
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/json_output.h"
#include "local/replay_file.h"

namespace tokamak::cli {
namespace {

constexpr char kExamples[] =
    "  tokamak serve --record run.rec     later: tokamak replay run.rec\n"
    "  tokamak replay run.rec --schedule-only\n";

struct ReplayFlags {
  ReplayFileOptions options;
  bool json = false;
};

int Run(const ReplayFlags& flags) {
  const Result<ReplayFileReport> report = ReplayFile(flags.options);
  if (!report.ok()) return Fail(report.status());
  const ReplayReport& counts = report->counts;
  if (flags.json) {
    std::printf("%s\n", ReplayJson(counts.requests, counts.steps, counts.tokens).c_str());
  } else {
    std::printf("%lld requests, %lld steps, %lld tokens: all as recorded\n",
                static_cast<long long>(counts.requests), static_cast<long long>(counts.steps),
                static_cast<long long>(counts.tokens));
    if (!flags.options.schedule_only && report->fingerprint != report->recorded_fingerprint) {
      std::printf("(recorded by %s, replayed by %s)\n", report->recorded_fingerprint.c_str(),
                  report->fingerprint.c_str());
    }
  }
  return kOk;
}

}  // namespace

void AddReplayCommand(CommandLine& line) {
  auto flags = std::make_shared<ReplayFlags>();
  Flags f = line.Command("replay", "Repeat a recorded run and check every token", kExamples,
                         [flags] { return Run(*flags); });
  f.AddRequired("file", flags->options.path, "File that --record wrote");
  f.Add("--model", flags->options.model, "The model, if it is not at the recorded path");
  f.Add("--threads", flags->options.threads, "Compute threads; 0: one per physical core");
  f.Add("--schedule-only", flags->options.schedule_only,
        "Repeat the schedule with the recorded tokens, without the model");
  f.Add("--json", flags->json, "Print one JSON object");
}

}  // namespace tokamak::cli
