// The commands. Each function declares one command; its source file holds all of the command.
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
void AddWorkerCommand(CommandLine& line);

// Adds all commands, in the order of --help.
void AddCommands(CommandLine& line);

}  // namespace tokamak::cli
