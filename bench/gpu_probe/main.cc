// Asks one GPU the questions whose answers decide how kernels are written:
//   gpu_probe --out DIR [--sections bits,graphs] [--seconds LIMIT_OF_EACH]
// Each section runs in a process of its own and is killed at its time limit; what it had measured
// by then is in DIR/<section>.md, whose last line says how the section ended.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "bench/gpu_probe/probe.h"

namespace {

struct Section {
  const char* name;
  void (*run)(probe::Report&);
  double seconds;  // its limit; about three times what it should need
};

constexpr Section kSections[] = {
    {"bits", probe::RunBits, 180},
    {"kv_layout", probe::RunKvLayout, 90},
    {"dependent_launch", probe::RunDependentLaunch, 90},
    {"k_chunks", probe::RunKChunks, 60},
    {"graphs", probe::RunGraphs, 120},
    {"wgmma", probe::RunWgmma, 150},
    {"tools", probe::RunTools, 20},
};

// Says how a section ended, on stdout and at the end of its file.
void Note(const Section& section, const std::string& folder, const char* how, int status) {
  char line[128];
  std::snprintf(line, sizeof(line), "\nsection %s: %s (wait status %d)\n", section.name, how,
                status);
  std::FILE* file = std::fopen((folder + "/" + section.name + ".md").c_str(), "a");
  for (std::FILE* out : {stdout, file}) {
    if (out != nullptr) std::fputs(line, out);
  }
  if (file != nullptr) (void)std::fclose(file);
}

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
      Note(section, folder, good ? "ended" : "FAILED; its tables are incomplete", status);
      return good;
    }
    usleep(50'000);
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  Note(section, folder, "KILLED at its time limit; its tables are incomplete", status);
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
  double seconds = 0;  // 0: each section's own
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--out") folder = argv[i + 1];
    if (option == "--sections") sections = argv[i + 1];
    if (option == "--seconds") seconds = std::atof(argv[i + 1]);
  }
  if (folder.empty() || seconds < 0) {
    std::fprintf(stderr, "usage: gpu_probe --out DIR [--sections a,b] [--seconds LIMIT_OF_EACH]\n");
    return 2;
  }
  bool good = true;
  for (const Section& section : kSections) {
    if (!sections.empty() && !Contains(sections, section.name)) continue;
    good &= RunInChild(section, folder, seconds > 0 ? seconds : section.seconds);
  }
  return good ? 0 : 1;
}
