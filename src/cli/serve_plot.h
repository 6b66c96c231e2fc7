// Plots several loads on one server.
#pragma once

#include <string>
#include <vector>

#include "cli/serve_report.h"

namespace tokamak::cli {

// Returns an SVG of latencies and throughput over each load's rate or concurrency.
std::string ServeBenchPlot(const std::vector<ServeBenchResult>& results);

}  // namespace tokamak::cli
