// The commands. Each function declares one command on the command line; its file holds all of it.
#pragma once

#include "cli/flags.h"

namespace tokamak::cli {

void AddRunCommand(CommandLine& line);
void AddServeCommand(CommandLine& line);
void AddBenchCommands(CommandLine& line);  // throughput, latency
void AddBenchServeCommand(CommandLine& line);
void AddInspectCommand(CommandLine& line);
void AddScoreCommand(CommandLine& line);
void AddEmbedCommand(CommandLine& line);
void AddTokenizeCommand(CommandLine& line);
void AddPlanCommand(CommandLine& line);
void AddListModelsCommand(CommandLine& line);
void AddRenderCommand(CommandLine& line);
void AddReplayCommand(CommandLine& line);

// All of them, in the order of --help.
void AddCommands(CommandLine& line);

}  // namespace tokamak::cli
