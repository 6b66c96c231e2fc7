#include "cli/commands.h"

namespace tokamak::cli {

void AddCommands(CommandLine& line) {
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
  AddWorkerCommand(line);
}

}  // namespace tokamak::cli
