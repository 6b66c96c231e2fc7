// Merges the reports of several replicas, as if they were one engine.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tokamak/engine_snapshot.h"
#include "tokamak/engine_stats.h"

namespace tokamak {

// Counts are added up; seconds_since_progress is the longest. Requires at least one.
EngineStats Sum(std::vector<EngineStats> replicas);

// Sequences, requests and blocks of all replicas, within the limits of one snapshot. The trees get
// a common root. Requires at least one.
EngineSnapshot Merge(std::span<const std::shared_ptr<const EngineSnapshot>> replicas);

}  // namespace tokamak
