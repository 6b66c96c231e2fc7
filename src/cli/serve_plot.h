// The picture of several loads on one server.
#pragma once

#include <string>
#include <vector>

#include "cli/serve_report.h"

namespace tokamak::cli {

// An SVG with latencies and throughput over the rate or the concurrency of each load.
std::string ServeBenchPlot(const std::vector<ServeBenchResult>& results);

}  // namespace tokamak::cli
