// sim: runs random schedules of the engine core against a fake executor that checks every step.
//
//   sim --schedules 10000 --seed 1 --depth 0
//
// Prints a summary, or the first failure with the command that repeats it.
#include <fmt/core.h>
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

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

}  // namespace

int main(int argc, char** argv) {
  const uint64_t schedules = Flag(argc, argv, "--schedules", 1000);
  const uint64_t first = Flag(argc, argv, "--seed", 1);
  const auto depth = static_cast<int32_t>(Flag(argc, argv, "--depth", 0));
  const auto clients = static_cast<int32_t>(Flag(argc, argv, "--clients", 0));
  const std::string record_path = TextFlag(argc, argv, "--record");
  const auto min_steps = static_cast<int32_t>(Flag(argc, argv, "--steps", 200));
  tokamak::SetLogLevel(tokamak::LogLevel::kOff);
  signal(SIGABRT, OnSignal);
  signal(SIGSEGV, OnSignal);
  signal(SIGPROF, OnSignal);
  ScheduleStats total;
  // CPU time of this process; other work on the machine does not count.
  const std::clock_t start = std::clock();
  for (uint64_t seed = first; seed < first + schedules; ++seed) {
    running_low = static_cast<sig_atomic_t>(seed & 0xffffffff);
    running_high = static_cast<sig_atomic_t>(seed >> 32);
    running_depth = depth;
    setitimer(ITIMER_PROF, &kHang, nullptr);
    ScheduleOptions options;
    options.seed = seed;
    options.depth = depth;
    options.min_steps = min_steps;
    options.clients = clients;
    options.record_path = record_path;  // keeps the last schedule's record
    Simulation simulation(options);
    const std::string failure = simulation.Run();
    total.Add(simulation.stats());
    if (!failure.empty()) {
      fmt::print(stderr,
                 "seed {}: {}\nrepeat with: {} --schedules 1 --seed {} --depth {} --steps {}\n",
                 seed, failure, argv[0], seed, depth, min_steps);
      return 1;
    }
  }
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  fmt::print(
      "{} schedules, {} steps checked in {:.1f} s of CPU time: {:.0f} steps/s; {} rows, {} drafts "
      "({} accepted, {} of these with masks; {} proposed by a model), {} requests ({} structured), "
      "{} refused, {} tokens, "
      "{} from the cache, {} "
      "preemptions, {} "
      "pauses, {} copies, {} executor failures, {} engines ended by them\n",
      schedules, total.steps, seconds, static_cast<double>(total.steps) / seconds, total.rows,
      total.drafts, total.accepted, total.masked, total.proposals, total.requests, total.structured,
      total.refused, total.tokens, total.cached_tokens, total.preemptions, total.pauses,
      total.copies, total.failures, total.failed_engines);
  return 0;
}
