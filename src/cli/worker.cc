// tokamak worker: one rank of a model, for a driver in another process.
#include <sys/prctl.h>

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "local/worker.h"

namespace tokamak::cli {
namespace {

constexpr char kExamples[] =
    "  tokamak serve model.gguf --tp 2 --workers processes    starts its workers itself\n"
    "  tokamak serve model.gguf --tp 2 --workers processes --worker-address unix:/run/me/t/socket\n"
    "  mpirun -n 2 tokamak worker model.gguf --driver unix:/run/me/t/socket\n";

// The rank that whatever started this process has given it.
Result<int32_t> RankFromLauncher() {
  // Open MPI's mpirun, MPICH's, srun.
  for (const char* const name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr) continue;
    const std::string_view text = value;
    int32_t rank = 0;
    const auto [end, error] = std::from_chars(text.begin(), text.end(), rank);
    if (error == std::errc() && end == text.end()) return rank;
    return InvalidArgument("{}: \"{}\" is not a rank", name, text);
  }
  return InvalidArgument("rank: is needed, unless mpirun or srun starts this worker");
}

struct WorkerFlags {
  WorkerOptions options;
  std::optional<int32_t> rank;
  bool ignore_signals = false;
};

int Work(const WorkerFlags& flags) {
  WorkerOptions options = flags.options;
  const Result<int32_t> rank = flags.rank ? Result<int32_t>(*flags.rank) : RankFromLauncher();
  if (!rank.ok()) return Fail(rank.status());
  options.rank = *rank;
  const Result<std::string> path = ResolveModel(options.model);
  if (!path.ok()) return Fail(path.status());
  options.model = *path;
  if (flags.ignore_signals) {
    std::signal(SIGINT, SIG_IGN);
    std::signal(SIGTERM, SIG_IGN);
  }
  // A stopped worker goes on when the driver that started it ends, in order to notice that.
  ::prctl(PR_SET_PDEATHSIG, SIGCONT);
  options.on_driver_gone = [] { std::_Exit(kOk); };
  return Fail(RunWorker(options));
}

}  // namespace

void AddWorkerCommand(CommandLine& line) {
  auto flags = std::make_shared<WorkerFlags>();
  WorkerOptions& o = flags->options;
  Flags f = line.Command("worker", "Run one rank of a model for another process", kExamples,
                         [flags] { return Work(*flags); });
  AddModel(f, o.model);
  f.Add("--mmproj", o.mmproj, "As the driver's");
  f.Add("--dummy-dtype", o.dummy_dtype, "As the driver's");
  f.Add("--rank", flags->rank, "Which of the ranks, from 0; default: what mpirun or srun says");
  f.Add("--driver", o.driver, "Where the driver listens: unix:PATH or HOST:PORT");
  f.Add("--cert", o.cert, "For HOST:PORT, this worker's certificate (PEM)");
  f.Add("--key", o.key, "Its key");
  f.Add("--ca", o.ca, "The authority that must have signed the driver's certificate");
  f.Add("--folder", o.folder, "For HOST:PORT and several ranks, the driver's --worker-folder");
  f.Add("--ignore-signals", flags->ignore_signals,
        "Run on after SIGINT and SIGTERM, because a driver that drains needs its workers: they end "
        "when it does");
}

}  // namespace tokamak::cli
