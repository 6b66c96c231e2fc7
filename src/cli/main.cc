#include <cstdio>
#include <cstdlib>

#include "api/version.h"
#include "cli/commands.h"

int main(int argc, char** argv) {
  using namespace tokamak::cli;  // NOLINT(google-build-using-namespace): every command is meant
  CommandLine line("tokamak", "Runs and serves language models.", tokamak::VersionText());
  AddRunCommand(line);
  AddServeCommand(line);
  AddBenchCommands(line);
  AddBenchServeCommand(line);
  AddInspectCommand(line);
  AddPlanCommand(line);
  AddListModelsCommand(line);
  AddScoreCommand(line);
  AddEmbedCommand(line);
  AddTokenizeCommand(line);
  AddRenderCommand(line);
  AddReplayCommand(line);
  const int code = line.Run(argc, argv);
  std::fflush(nullptr);
  // A device that failed may be in a state in which the libraries' own ends would wait for it.
  if (code != 0) std::_Exit(code);
  return code;
}
