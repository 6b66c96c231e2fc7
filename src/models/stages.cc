#include "models/stages.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace tokamak {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

// What is left to pay from a layer on, and where the stage that begins there ends.
struct Rest {
  double cost = kImpossible;
  size_t end = 0;
};

// The best division of all layers. `add(stage, rest)` is the cost of a stage and those behind it.
template <typename Add>
std::vector<IndexRange> Best(const LayerCosts& costs, int32_t stages, Add add) {
  const size_t size = costs.layers.size();
  const auto count = static_cast<size_t>(stages);
  std::vector<std::vector<Rest>> rests(count + 1, std::vector<Rest>(size + 1));
  rests[count][size].cost = 0;
  for (size_t stage = count; stage-- > 0;) {
    const auto least = stage == 0 ? static_cast<size_t>(costs.least_first) : size_t{1};
    for (size_t begin = 0; begin < size; ++begin) {
      Rest& best = rests[stage][begin];
      double own = stage + 1 == count ? static_cast<double>(costs.output) : 0;
      for (size_t end = begin + 1; end <= size; ++end) {
        own += static_cast<double>(costs.layers[end - 1]);
        if (end - begin < least) continue;
        const double cost = add(own, rests[stage + 1][end].cost);
        if (cost < best.cost) best = {cost, end};
      }
    }
  }
  std::vector<IndexRange> ranges;
  for (size_t stage = 0, begin = 0; stage < count; ++stage) {
    const size_t end = rests[stage][begin].end;
    ranges.push_back({static_cast<int64_t>(begin), static_cast<int64_t>(end)});
    begin = end;
  }
  return ranges;
}

double MostExpensive(const LayerCosts& costs, const std::vector<IndexRange>& stages) {
  double most = 0;
  for (const IndexRange& stage : stages) {
    double own = stage.end == std::ssize(costs.layers) ? static_cast<double>(costs.output) : 0;
    for (int64_t i = stage.begin; i < stage.end; ++i) {
      own += static_cast<double>(costs.layers[static_cast<size_t>(i)]);
    }
    most = std::max(most, own);
  }
  return most;
}

}  // namespace

Result<std::vector<IndexRange>> DivideLayers(const LayerCosts& costs, int32_t stages) {
  const int64_t most_stages = std::ssize(costs.layers) - costs.least_first + 1;
  if (stages > most_stages) {
    return InvalidArgument(
        "pipeline_parallel: the model's {} layers cannot be divided among {} stages{}; {} would "
        "work",
        costs.layers.size(), stages,
        costs.least_first > 1
            ? fmt::format(", because the first {} must be on the first", costs.least_first)
            : "",
        most_stages);
  }
  const double most = MostExpensive(
      costs, Best(costs, stages, [](double own, double rest) { return std::max(own, rest); }));
  return Best(costs, stages, [most](double own, double rest) {
    return own > most ? kImpossible : own * own + rest;
  });
}

}  // namespace tokamak
