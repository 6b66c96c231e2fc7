// Percentiles in the benchmarks.
#pragma once

#include <cstddef>
#include <vector>

namespace tokamak::loadgen {

// Nearest rank: the smallest of the values such that at least `percent` (in (0, 100]) percent of
// them do not exceed it. `sorted` ascends; returns 0 if it is empty.
inline double NearestRank(const std::vector<double>& sorted, int percent) {
  if (sorted.empty()) return 0;
  const size_t rank = (sorted.size() * static_cast<size_t>(percent) + 99) / 100;
  return sorted[rank - 1];
}

}  // namespace tokamak::loadgen
