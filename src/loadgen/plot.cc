#include "loadgen/plot.h"

#include <fmt/core.h>

#include <algorithm>

#include "loadgen/svg_plot.h"

namespace tokamak::loadgen {
namespace {

double LoadOf(const LoadResult& result) {
  const LoadPattern& pattern = result.load.pattern;
  return pattern.concurrency > 0 ? pattern.concurrency : pattern.rate;
}

PlotPanel Latency(const std::string& title, const std::vector<LoadResult>& results,
                  Spread LoadResult::*spread, const std::optional<double>& limit) {
  PlotSeries p50{"p50", {}}, p90{"p90", {}}, p99{"p99", {}};
  for (const LoadResult& result : results) {
    const Spread& s = result.*spread;
    if (s.count == 0) continue;
    p50.points.emplace_back(LoadOf(result), s.p50);
    p90.points.emplace_back(LoadOf(result), s.p90);
    p99.points.emplace_back(LoadOf(result), s.p99);
  }
  return {.title = title, .series = {p50, p90, p99}, .limit = limit};
}

PlotPanel Requests(const std::vector<LoadResult>& results, const Slo& slo) {
  PlotSeries done{"done", {}}, failed{"failed", {}}, good{"met the SLO", {}};
  for (const LoadResult& result : results) {
    const double x = LoadOf(result);
    done.points.emplace_back(x, result.requests_s);
    failed.points.emplace_back(x, result.errors / std::max(result.seconds, 1e-9));
    good.points.emplace_back(x, result.goodput_s);
  }
  PlotPanel panel{.title = "Requests per second", .series = {done, failed}, .limit = {}};
  if (slo.any()) panel.series.push_back(good);
  return panel;
}

}  // namespace

std::string LatencyPlot(const std::vector<LoadResult>& unordered) {
  if (unordered.empty()) return PlotSvg({});
  std::vector<LoadResult> results = unordered;
  std::stable_sort(results.begin(), results.end(),
                   [](const auto& a, const auto& b) { return LoadOf(a) < LoadOf(b); });
  const LoadDescription& load = results.front().load;
  const WorkloadOptions& workload = load.workload;
  const Slo& slo = results.front().slo;
  Plot plot;
  plot.title = fmt::format("{} at {}", load.model.empty() ? "A model" : load.model, load.url);
  if (!load.owned_by.empty()) plot.title += fmt::format(" ({})", load.owned_by);
  int64_t requests = 0;
  for (const LoadResult& result : results) requests += result.requests;
  const std::string lengths = load.replayed.empty()
                                  ? fmt::format("input {} words, output {} tokens",
                                                workload.input.text(), workload.output.text())
                                  : "lengths of " + load.replayed;
  plot.subtitle = fmt::format("{}, {} requests; {}", load.endpoint, requests, lengths);
  if (workload.shared_prefix > 0) {
    plot.subtitle += fmt::format("; {} shared words", workload.shared_prefix);
  }
  const std::string& turns = workload.turns.text();
  if (turns != "1") plot.subtitle += fmt::format("; {} turns", turns);
  const bool closed = load.pattern.concurrency > 0;
  plot.x_label = closed         ? "conversations at a time"
                 : turns == "1" ? "requests per second, offered"
                                : "conversations per second, offered";
  PlotSeries output{"output", {}};
  for (const LoadResult& result : results) {
    output.points.emplace_back(LoadOf(result), result.output_tok_s);
  }
  plot.panels = {
      Latency("First token, ms", results, &LoadResult::ttft_ms, slo.ttft_ms),
      Latency("Time per output token, ms", results, &LoadResult::tpot_ms, slo.tpot_ms),
      Latency("Inter-token gap, ms", results, &LoadResult::itl_ms, {}),
      Latency("End to end, ms", results, &LoadResult::e2e_ms, slo.e2e_ms),
      {.title = "Output tokens per second", .series = {output}, .limit = {}},
      Requests(results, slo),
  };
  return PlotSvg(plot);
}

}  // namespace tokamak::loadgen
