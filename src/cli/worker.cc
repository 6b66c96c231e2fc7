// tokamak worker: one rank of a model, for a driver in another process.
#include <sys/prctl.h>

#include <csignal>
#include <cstdlib>
#include <memory>

#include "cli/commands.h"
#include "cli/common.h"
#include "local/worker.h"

namespace tokamak::cli {
namespace {

constexpr char kExamples[] =
    "  tokamak serve model.gguf --tp 2 --workers processes    starts its workers itself\n";

int Work(WorkerOptions options) {
  const Result<std::string> path = ResolveModel(options.model);
  if (!path.ok()) return Fail(path.status());
  options.model = *path;
  // A driver that drains needs its workers to the end, and they end when it does.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  // A stopped worker goes on when its driver ends, in order to notice that.
  ::prctl(PR_SET_PDEATHSIG, SIGCONT);
  options.on_driver_gone = [] { std::_Exit(kOk); };
  return Fail(RunWorker(options));
}

}  // namespace

void AddWorkerCommand(CommandLine& line) {
  auto flags = std::make_shared<WorkerOptions>();
  Flags f = line.Command("worker", "Run one rank of a model for another process", kExamples,
                         [flags] { return Work(*flags); });
  AddModel(f, flags->model);
  f.Add("--mmproj", flags->mmproj, "As the driver's");
  f.Add("--dummy-dtype", flags->dummy_dtype, "As the driver's");
  f.Add("--rank", flags->rank, "Which of the ranks, from 0");
  f.Add("--connect", flags->connect, "The driver's address: unix:PATH");
}

}  // namespace tokamak::cli
