// Asks one GPU the questions whose answers decide how kernels are written:
//   gpu_probe --out DIR [--sections bits,graphs] [--seconds 60]
// Each section runs in a process of its own and is killed at its time limit; what it had measured
// by then is in DIR/<section>.md.
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <sstream>

#include "bench/gpu_probe/probe.h"

namespace {

struct Section {
  const char* name;
  void (*run)(probe::Report&);
};

constexpr Section kSections[] = {
    {"bits", probe::RunBits},
    {"kv_layout", probe::RunKvLayout},
    {"dependent_launch", probe::RunDependentLaunch},
    {"k_chunks", probe::RunKChunks},
    {"graphs", probe::RunGraphs},
    {"wgmma", probe::RunWgmma},
    {"tools", probe::RunTools},
};

// Returns whether the section ended by itself, without an error.
bool RunInChild(const Section& section, const std::string& folder, double seconds) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    {
      probe::Report report(folder, section.name, seconds);
      section.run(report);
    }
    std::fflush(nullptr);
    _exit(0);
  }
  int status = 0;
  for (double waited = 0; waited < seconds + 5; waited += 0.05) {
    if (waitpid(child, &status, WNOHANG) == child) {
      const bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
      if (!good) std::printf("section %s FAILED (status %d)\n", section.name, status);
      return good;
    }
    usleep(50'000);
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  std::printf("section %s ended at its limit of %.0f s\n", section.name, seconds);
  return false;
}

bool Contains(const std::string& list, const std::string& name) {
  std::stringstream stream(list);
  for (std::string item; std::getline(stream, item, ',');) {
    if (item == name) return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder, sections;
  double seconds = 60;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--out") folder = argv[i + 1];
    if (option == "--sections") sections = argv[i + 1];
    if (option == "--seconds") seconds = std::atof(argv[i + 1]);
  }
  if (folder.empty() || seconds <= 0) {
    std::fprintf(stderr, "usage: gpu_probe --out DIR [--sections a,b] [--seconds LIMIT_OF_EACH]\n");
    return 2;
  }
  bool good = true;
  for (const Section& section : kSections) {
    if (!sections.empty() && !Contains(sections, section.name)) continue;
    good &= RunInChild(section, folder, seconds);
  }
  return good ? 0 : 1;
}
