#include "loadgen/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "loadgen/plot.h"
#include "loadgen/svg_plot.h"
#include "loadgen/workload.h"

namespace tokamak::loadgen {
namespace {

TEST(NearestRank, IsTheSmallestValueThatCoversThePercentile) {
  for (size_t n = 1; n <= 203; ++n) {
    std::vector<double> sorted;
    for (size_t i = 0; i < n; ++i) sorted.push_back(static_cast<double>(i * i));
    for (const int percent : {1, 50, 90, 99, 100}) {
      const auto enough = [&](double value) {
        const auto not_above = std::upper_bound(sorted.begin(), sorted.end(), value);
        return static_cast<size_t>(not_above - sorted.begin()) * 100 >=
               n * static_cast<size_t>(percent);
      };
      const double expected = *std::find_if(sorted.begin(), sorted.end(), enough);
      EXPECT_EQ(NearestRank(sorted, percent), expected) << n << " values, p" << percent;
    }
  }
  EXPECT_EQ(NearestRank({}, 50), 0);
}

TEST(SpreadOf, SortsTheValues) { EXPECT_EQ(SpreadOf({3, 1, 2}).p50, 2); }

RequestRecord Answered(double intended, double sent, std::vector<double> text_at) {
  RequestRecord record;
  record.intended = intended;
  record.sent = sent;
  record.end = text_at.empty() ? sent : text_at.back();
  record.text_at = std::move(text_at);
  record.http_status = 200;
  return record;
}

TEST(RequestRecord, LatencyBeginsAtTheIntendedTime) {
  // Sent 1 s late, which is part of the user's waiting time.
  const RequestRecord record = Answered(10, 11, {11.5, 11.6, 11.9});
  EXPECT_NEAR(*record.ttft(), 1.5, 1e-9);
  EXPECT_NEAR(record.e2e(), 1.9, 1e-9);
  EXPECT_NEAR(*record.tpot(), 0.2, 1e-9);  // three events count as three tokens
  RequestRecord counted = record;
  counted.usage = StreamedChunk::Usage{.completion_tokens = 5};  // some events had two tokens
  EXPECT_NEAR(*counted.tpot(), 0.1, 1e-9);
  EXPECT_FALSE(Answered(0, 0, {1}).tpot());
  EXPECT_FALSE(Answered(0, 0, {}).ttft());
}

TEST(ParseSlo, TakesLimitsInAnyOrder) {
  const auto slo = ParseSlo("tpot=50,ttft=500.5");
  ASSERT_TRUE(slo.ok());
  EXPECT_EQ(slo->ttft_ms, 500.5);
  EXPECT_EQ(slo->tpot_ms, 50);
  EXPECT_FALSE(slo->e2e_ms);
  for (const char* text : {"", "ttft", "ttft=", "ttft=0", "ttft=-1", "ttft=x", "ttft=1x", "itl=5",
                           "ttft=1,ttft=2", "ttft=1,", ",ttft=1", "ttft=nan", "ttft=inf"}) {
    EXPECT_EQ(ParseSlo(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(Slo, IsMetByRequestsWithinAllLimits) {
  const Slo slo{.ttft_ms = 500, .tpot_ms = 100, .e2e_ms = 2000};
  const RequestRecord good = Answered(0, 0, {0.5, 0.6});
  EXPECT_TRUE(Meets(slo, good));
  EXPECT_FALSE(Meets(slo, Answered(0, 0, {0.51, 0.6})));
  EXPECT_FALSE(Meets(slo, Answered(0, 0, {0.4, 0.51})));
  EXPECT_FALSE(Meets({.ttft_ms = {}, .tpot_ms = {}, .e2e_ms = 599}, good));
  EXPECT_TRUE(Meets(slo, Answered(0, 0, {0.5})));   // one token has no time per token
  EXPECT_FALSE(Meets(slo, Answered(-0.6, 0, {})));  // no text: the end is its first token
  RequestRecord failed = good;
  failed.error_kind = "closed";
  EXPECT_FALSE(Meets(slo, failed));
  EXPECT_FALSE(Meets({}, failed));
  EXPECT_TRUE(Meets({}, good));
}

TEST(Summary, AddsUpTokensAndErrors) {
  Summary summary({}, {.ttft_ms = 500, .tpot_ms = {}, .e2e_ms = {}});
  RequestRecord first = Answered(0, 0.001, {0.4, 0.5, 0.7});
  first.usage =
      StreamedChunk::Usage{.prompt_tokens = 100, .cached_tokens = 60, .completion_tokens = 4};
  summary.Add(first);
  summary.Add(Answered(1, 1, {2, 2.25}));  // without usage: two tokens
  RequestRecord failed;
  failed.intended = failed.sent = 1;
  failed.end = 4;
  failed.error_kind = "http_503";
  failed.error = "full";
  summary.Add(failed);
  const LoadResult r = summary.Finish(/*cancelled=*/1, /*seconds=*/4, /*cpu_seconds=*/2);
  EXPECT_EQ(r.requests, 3);
  EXPECT_EQ(r.errors, 1);
  EXPECT_EQ(r.errors_by_kind.at("http_503"), 1);
  EXPECT_EQ(r.first_error, "full");
  EXPECT_EQ(r.seconds, 4);
  EXPECT_EQ(r.window_seconds, 2.25);  // ends with the last success, not with the failure
  EXPECT_EQ(r.prompt_tokens, 100);
  EXPECT_EQ(r.cached_tokens, 60);
  EXPECT_EQ(r.output_tokens, 6);
  EXPECT_EQ(r.without_usage, 1);
  EXPECT_DOUBLE_EQ(r.output_tok_s, 6 / 2.25);
  EXPECT_DOUBLE_EQ(r.total_tok_s, 106 / 2.25);
  EXPECT_DOUBLE_EQ(r.requests_s, 2 / 2.25);
  EXPECT_DOUBLE_EQ(r.goodput_s, 1 / 2.25);
  EXPECT_DOUBLE_EQ(r.client_cpu, 0.5);
  EXPECT_EQ(r.itl_ms.count, 3);
  EXPECT_NEAR(r.itl_ms.max, 250, 1e-6);
  EXPECT_NEAR(r.ttft_ms.p99, 1000, 1e-6);
  EXPECT_NEAR(r.late_ms.max, 1, 1e-6);
  const auto json = nlohmann::json::parse(ResultJson(r));
  EXPECT_EQ(json["errors_by_kind"]["http_503"], 1);
  EXPECT_EQ(json["good"], 1);
  EXPECT_EQ(json["slo"]["ttft_ms"], 500);
  EXPECT_EQ(json["slo"]["tpot_ms"], nullptr);
  EXPECT_NE(ResultText(r).find("1 answers without usage"), std::string::npos);
}

TEST(Summary, RatesCoverTheMeasuredWindow) {
  // A server makes a token every 0.1 s and ends an answer of ten tokens every second, for 100 s;
  // the load waits for the last request until 130 s.
  Summary summary({.ramp_seconds = 10, .duration_seconds = 60},
                  {.ttft_ms = {}, .tpot_ms = {}, .e2e_ms = 1500});
  int began_later = 0;
  const auto answer = [&](double begin, double first, double step) {
    RequestRecord record = Answered(begin, begin, {});
    for (int i = 0; i < 10; ++i) record.text_at.push_back(first + step * i);
    record.end = record.text_at.back();
    record.usage = StreamedChunk::Usage{.prompt_tokens = 7, .completion_tokens = 10};
    summary.Add(record);
    began_later += begin >= 10 ? 1 : 0;
  };
  for (int i = 0; i < 100; ++i) answer(i + 0.05, i + 0.05, 0.1);
  answer(59, 121, 1);  // the straggler
  RequestRecord failed;
  failed.intended = failed.sent = 1;
  failed.end = 59;
  failed.error_kind = "timeout";
  summary.Add(failed);
  const LoadResult r = summary.Finish(/*cancelled=*/0, /*seconds=*/130, /*cpu_seconds=*/13);
  EXPECT_EQ(r.seconds, 130);
  EXPECT_EQ(r.window_seconds, 50);
  EXPECT_NEAR(r.output_tok_s, 10, 1e-9);
  EXPECT_NEAR(r.total_tok_s, 17, 1e-9);
  EXPECT_NEAR(r.requests_s, 1, 1e-9);
  EXPECT_NEAR(r.goodput_s, 1, 1e-9);
  EXPECT_NEAR(r.offered_s, 1.02, 1e-9);  // including the straggler
  EXPECT_NEAR(r.client_cpu, 0.1, 1e-9);
  EXPECT_EQ(r.errors, 1);  // errors before the window count, too
  EXPECT_EQ(r.requests, began_later + 1);
  EXPECT_EQ(r.good, began_later - 1);
  EXPECT_EQ(r.e2e_ms.count, began_later);
  EXPECT_NEAR(r.e2e_ms.max, 71'000, 1e-6);  // the window does not cut it off
  EXPECT_EQ(r.output_tokens, began_later * 10);
}

TEST(Summary, EndsWhereTheLoadWasInterrupted) {
  Summary summary({.duration_seconds = 60}, {});
  summary.Add(Answered(0, 0, {1, 2}));
  EXPECT_DOUBLE_EQ(summary.Finish(0, 4, 0).output_tok_s, 0.5);
}

TEST(Summary, IsZeroWithoutRequests) {
  const LoadResult r = Summary({}, {}).Finish(0, 0, 0);
  EXPECT_EQ(r.requests_s, 0);
  EXPECT_EQ(r.ttft_ms.p99, 0);
  EXPECT_EQ(nlohmann::json::parse(ResultJson(r))["goodput_s"], nullptr);
  // No times are shown if none were measured.
  EXPECT_EQ(ResultText(r).find("first token"), std::string::npos);
  EXPECT_NE(ResultTable({r}).find(" - "), std::string::npos);
}

TEST(TraceLine, HoldsWhatReplayReads) {
  RequestRecord record = Answered(2, 2, {2.5});
  record.input_words = 12;
  record.output_asked = 34;
  const std::string line = TraceLine(record, 0);
  const auto replayed = ParseReplay(line);
  ASSERT_TRUE(replayed.ok());
  EXPECT_EQ(replayed->front().front().input_words, 12);
  EXPECT_EQ(replayed->front().front().output_tokens, 34);
  EXPECT_EQ(nlohmann::json::parse(line)["text_at_ms"], nlohmann::json::array({500.0}));
}

TEST(AxisTicks, AreRoundAndWithinTheAxis) {
  EXPECT_EQ(AxisTicks(0, 10, false), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(AxisTicks(0.9, 11, true), (std::vector<double>{1, 2, 5, 10}));
  EXPECT_EQ(AxisTicks(5, 60'000, true), (std::vector<double>{10, 100, 1000, 10'000}));
  for (double high = 1e-4; high < 1e8; high *= 1.7) {
    for (const bool log : {false, true}) {
      const double low = log ? high / 9 : 0;
      const auto ticks = AxisTicks(low, high, log);
      EXPECT_GE(ticks.size(), 2u) << high;
      EXPECT_LE(ticks.size(), 9u) << high;
      for (const double tick : ticks) EXPECT_TRUE(tick >= low && tick <= high * (1 + 1e-9)) << tick;
    }
  }
}

// Whether each tag is closed in order. (The end-to-end test parses a plot with a full XML parser.)
bool IsBalanced(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at + 1)) {
    const size_t end = xml.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(0, tag.find_first_of(" />", tag.starts_with('/')));
    if (tag.starts_with('/')) {
      if (open.empty() || "/" + open.back() != name) return false;
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      open.push_back(name);
    }
  }
  return open.empty();
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(PlotSvg, HasBalancedTagsForAnyInput) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  Plot plot{.title = "<a> & \"b\"\x01", .subtitle = "", .x_label = "x", .panels = {}};
  EXPECT_TRUE(IsBalanced(PlotSvg(plot)));
  plot.panels = {
      {.title = "one", .series = {{"p50", {{1, 5}}}}, .limit = 7},
      {.title = "none", .series = {{"p50", {}}}, .limit = 7},
      {.title = "odd", .series = {{"<", {{1, nan}, {2, inf}, {3, 0}, {4, 2}}}}, .limit = {}},
      {.title = "zeros", .series = {{"z", {{0, 0}}}}, .limit = {}},
      {.title = "wide", .series = {{"w", {{1, 1e-9}, {1e6, 1e12}}}}, .limit = {}}};
  const std::string svg = PlotSvg(plot);
  EXPECT_TRUE(IsBalanced(svg)) << svg;
  EXPECT_EQ(Count(svg, "nan"), 0u);
  EXPECT_EQ(Count(svg, "inf"), 0u);
  EXPECT_EQ(Count(svg, "<circle"), 6u);
  EXPECT_EQ(Count(svg, "&lt;a&gt; &amp; &quot;b&quot; "), 2u);
}

TEST(LatencyPlot, HasAMarkPerLoadAndPercentile) {
  std::vector<LoadResult> results;
  for (const double rate : {4.0, 1.0, 2.0}) {
    Summary summary({.url = "http://h:1", .model = "m", .pattern = {.rate = rate}},
                    {.ttft_ms = 600, .tpot_ms = {}, .e2e_ms = {}});
    summary.Add(Answered(0, 0, {0.5 * rate, 0.6 * rate}));
    results.push_back(summary.Finish(0, 1, 0));
  }
  const std::string svg = LatencyPlot(results);
  EXPECT_TRUE(IsBalanced(svg));
  EXPECT_EQ(Count(svg, "m at http://h:1"), 2u);
  // For three loads: four latencies with three percentiles, output, and three kinds of requests.
  EXPECT_EQ(Count(svg, "<circle"), (4u * 3 + 1 + 3) * 3);
  EXPECT_EQ(Count(svg, "class=\"limit\""), 1u);
  EXPECT_TRUE(IsBalanced(LatencyPlot({})));
}

}  // namespace
}  // namespace tokamak::loadgen
