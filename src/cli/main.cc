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
  AddScoreCommand(line);
  AddTokenizeCommand(line);
  AddReplayCommand(line);
  return line.Run(argc, argv);
}
