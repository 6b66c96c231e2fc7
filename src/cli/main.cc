#include <cstdio>
#include <cstdlib>

#include "base/version.h"
#include "cli/commands.h"

int main(int argc, char** argv) {
  tokamak::cli::CommandLine line("tokamak", "Runs and serves language models.",
                                 tokamak::VersionText());
  tokamak::cli::AddCommands(line);
  const int code = line.Run(argc, argv);
  std::fflush(nullptr);
  // After a failure, destructors of libraries might wait for a broken device.
  if (code != 0) std::_Exit(code);
  return code;
}
