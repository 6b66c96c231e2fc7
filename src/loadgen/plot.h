// Plots several loads on one server.
#pragma once

#include <string>
#include <vector>

#include "loadgen/report.h"

namespace tokamak::loadgen {

// Returns an SVG of latencies and throughput over each load's rate or concurrency.
std::string LatencyPlot(const std::vector<LoadResult>& results);

}  // namespace tokamak::loadgen
