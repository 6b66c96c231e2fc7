// sim: runs random schedules of the engine core against a fake executor that checks every step.
//
//   sim --schedules 10000 --seed 1 --depth 0
//   sim --schedules 1000000 --seed 1 --processes 16 --seconds 480
//
// Prints a summary, or the first failure with the command that repeats it. --seconds: begins no
// schedule after that time, so that the summary covers fewer than --schedules.
#include <fmt/core.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <string>
#include <type_traits>
#include <utility>

#include "base/log.h"
#include "sim/simulation.h"

namespace {

using tokamak::sim::ScheduleOptions;
using tokamak::sim::ScheduleStats;
using tokamak::sim::Simulation;

// Tells the signal handler in which schedule a crash or hang happened.
volatile sig_atomic_t running_low = 0;
volatile sig_atomic_t running_high = 0;
volatile sig_atomic_t running_depth = 0;

// CPU time, so that a busy machine does not look like a hang.
constexpr itimerval kHang = {.it_interval = {0, 0}, .it_value = {60, 0}};

void OnSignal(int signal) {
  char line[160];
  const uint64_t seed = (static_cast<uint64_t>(static_cast<uint32_t>(running_high)) << 32) |
                        static_cast<uint32_t>(running_low);
  const int size = std::snprintf(
      line, sizeof(line), "%s; repeat with: sim --schedules 1 --seed %llu --depth %d\n",
      signal == SIGPROF ? "a schedule hangs" : "a schedule crashed",
      static_cast<unsigned long long>(seed), static_cast<int>(running_depth));
  if (size > 0) (void)!write(STDERR_FILENO, line, static_cast<size_t>(size));
  _exit(1);
}

std::string TextFlag(int argc, char** argv, const char* name) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], name) == 0) return argv[i + 1];
  }
  return "";
}

uint64_t Flag(int argc, char** argv, const char* name, uint64_t otherwise) {
  const std::string text = TextFlag(argc, argv, name);
  return text.empty() ? otherwise : std::strtoull(text.c_str(), nullptr, 10);
}

struct Options {
  const char* program = "";
  uint64_t schedules = 0;
  uint64_t first = 0;  // seed
  uint64_t processes = 1;
  std::chrono::steady_clock::time_point end = std::chrono::steady_clock::time_point::max();
  ScheduleOptions schedule = {};
};

struct Total {
  ScheduleStats stats;
  uint64_t schedules = 0;
  double cpu_seconds = 0;
};

// Runs the seeds first + start, and then every `processes`-th. Returns false after a failure.
bool RunSeeds(const Options& options, uint64_t start, Total* total) {
  const std::clock_t begin = std::clock();
  ScheduleOptions schedule = options.schedule;
  for (uint64_t i = start; i < options.schedules; i += options.processes) {
    if (std::chrono::steady_clock::now() >= options.end) break;
    schedule.seed = options.first + i;
    running_low = static_cast<sig_atomic_t>(schedule.seed & 0xffffffff);
    running_high = static_cast<sig_atomic_t>(schedule.seed >> 32);
    running_depth = schedule.depth;
    setitimer(ITIMER_PROF, &kHang, nullptr);
    Simulation simulation(schedule);
    const std::string failure = simulation.Run();
    total->stats.Add(simulation.stats());
    ++total->schedules;
    if (failure.empty()) continue;
    fmt::print(
        stderr, "seed {}: {}\nrepeat with: {} --schedules 1 --seed {} --depth {} --steps {}\n",
        schedule.seed, failure, options.program, schedule.seed, schedule.depth, schedule.min_steps);
    return false;
  }
  total->cpu_seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  return true;
}

// The same in several processes, which the first failure ends.
bool RunInProcesses(const Options& options, Total* total) {
  static_assert(std::is_trivially_copyable_v<Total>);
  std::map<pid_t, int> pipes;  // where each process writes its total
  bool ok = true;
  for (uint64_t i = 0; i < options.processes; ++i) {
    int ends[2];
    const pid_t child = pipe(ends) == 0 ? fork() : -1;
    if (child < 0) {
      std::perror("sim");
      ok = false;
      break;
    }
    if (child == 0) {
      Total own;
      const bool passed = RunSeeds(options, i, &own);
      // Fits into the pipe, so it waits for no reader.
      const bool written = write(ends[1], &own, sizeof(own)) == ssize_t{sizeof(own)};
      _exit(passed && written ? 0 : 1);
    }
    close(ends[1]);
    pipes[child] = ends[0];
  }
  bool ending = false;
  while (!pipes.empty()) {
    if (!ok && !std::exchange(ending, true)) {
      for (const auto& [child, end] : pipes) kill(child, SIGKILL);
    }
    int status = 0;
    const pid_t child = wait(&status);
    const auto ended = pipes.find(child);
    if (ended == pipes.end()) continue;
    Total own;
    ok = ok && status == 0 && read(ended->second, &own, sizeof(own)) == ssize_t{sizeof(own)};
    total->stats.Add(own.stats);
    total->schedules += own.schedules;
    total->cpu_seconds += own.cpu_seconds;
    close(ended->second);
    pipes.erase(ended);
  }
  return ok;
}

void Print(const Options& options, const Total& total) {
  const ScheduleStats& stats = total.stats;
  fmt::print(
      "{} schedules from seed {}, {} steps checked in {:.1f} s of CPU time: {:.0f} steps/s; {} "
      "rows, {} drafts ({} accepted, {} of these with masks; {} proposed by a model), {} requests "
      "({} structured, {} with a budget, {} with beam search, {} with images, {} "
      "to models with states), {} forks, {} images encoded, {} refused, {} tokens, {} from the "
      "cache, "
      "{} preemptions, {} pauses, {} copies, {} executor failures, {} engines ended by them; {} "
      "schedules with ranks, {} outputs that overtook another rank's, {} restarts\n",
      total.schedules, options.first, stats.steps, total.cpu_seconds,
      static_cast<double>(stats.steps) / total.cpu_seconds, stats.rows, stats.drafts,
      stats.accepted, stats.masked, stats.proposals, stats.requests, stats.structured,
      stats.budgets, stats.searches, stats.with_images, stats.with_state, stats.forks,
      stats.encoded, stats.refused, stats.tokens, stats.cached_tokens, stats.preemptions,
      stats.pauses, stats.copies, stats.failures, stats.failed_engines, stats.with_ranks,
      stats.overtaken, stats.restarts);
}

}  // namespace

int main(int argc, char** argv) {
  Options options{.program = argv[0],
                  .schedules = Flag(argc, argv, "--schedules", 1000),
                  .first = Flag(argc, argv, "--seed", 1),
                  .processes = std::max<uint64_t>(1, Flag(argc, argv, "--processes", 1))};
  options.schedule.depth = static_cast<int32_t>(Flag(argc, argv, "--depth", 0));
  options.schedule.min_steps = static_cast<int32_t>(Flag(argc, argv, "--steps", 200));
  options.schedule.ranks = static_cast<int32_t>(Flag(argc, argv, "--ranks", 0));
  options.schedule.clients = static_cast<int32_t>(Flag(argc, argv, "--clients", 0));
  // Keeps the last schedule's record.
  options.schedule.record_path = TextFlag(argc, argv, "--record");
  const uint64_t seconds = Flag(argc, argv, "--seconds", 0);
  if (seconds > 0) {
    options.end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  }
  tokamak::SetLogLevel(tokamak::LogLevel::kOff);
  signal(SIGABRT, OnSignal);
  signal(SIGSEGV, OnSignal);
  signal(SIGPROF, OnSignal);
  Total total;
  const bool passed =
      options.processes == 1 ? RunSeeds(options, 0, &total) : RunInProcesses(options, &total);
  if (!passed) return 1;
  Print(options, total);
  return 0;
}
