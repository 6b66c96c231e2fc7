// A conversation in a terminal.
#pragma once

#include <string>
#include <vector>

#include "cli/common.h"
#include "tokamak/engine.h"

namespace tokamak::cli {

// Reads lines with editing and history until the user quits. Ctrl-C stops an answer or clears the
// line. Models without a chat template complete each line as text. Returns the exit code.
// `images` are part of the first message.
int RunRepl(Engine& engine, const SamplingParams& sampling, const std::string& system,
            std::vector<ImageData> images);

}  // namespace tokamak::cli
