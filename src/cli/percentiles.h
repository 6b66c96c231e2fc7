// What the benchmarks mean by a percentile.
#pragma once

#include <cstddef>
#include <vector>

namespace tokamak::cli {

// The nearest rank: the smallest value that at least `percent` in (0, 100] percent of all values do
// not exceed, itself one of them. `sorted` ascends; 0 when it is empty.
inline double NearestRank(const std::vector<double>& sorted, int percent) {
  if (sorted.empty()) return 0;
  const size_t rank = (sorted.size() * static_cast<size_t>(percent) + 99) / 100;
  return sorted[rank - 1];
}

}  // namespace tokamak::cli
