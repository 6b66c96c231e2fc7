#include "loadgen/report.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tokamak::loadgen {
namespace {

using Json = nlohmann::ordered_json;

// Beyond these limits the client itself may be the bottleneck.
constexpr double kBusyCpu = 0.8;
constexpr double kLateMs = 20;
constexpr double kShortestJudged = 1;  // seconds; the start dominates shorter runs

Json Object(const Spread& s) {
  if (s.count == 0) return Json();
  return {{"count", s.count}, {"mean", s.mean}, {"p50", s.p50},
          {"p90", s.p90},     {"p99", s.p99},   {"max", s.max}};
}

Json OrNull(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json Object(const Slo& slo) {
  if (!slo.any()) return Json();
  return {{"ttft_ms", OrNull(slo.ttft_ms)},
          {"tpot_ms", OrNull(slo.tpot_ms)},
          {"e2e_ms", OrNull(slo.e2e_ms)}};
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string LoadName(const LoadDescription& load) {
  const LoadPattern& pattern = load.pattern;
  if (!load.replayed.empty()) return fmt::format("replay, {:.3g}/s", pattern.rate);
  return pattern.concurrency > 0 ? fmt::format("concurrency {}", pattern.concurrency)
                                 : fmt::format("rate {:g}/s", pattern.rate);
}

bool Within(const std::optional<double>& limit, const std::optional<double>& seconds) {
  return !limit || !seconds || *seconds * 1e3 <= *limit;
}

}  // namespace

double NearestRank(const std::vector<double>& sorted, int percent) {
  if (sorted.empty()) return 0;
  const size_t rank = (sorted.size() * static_cast<size_t>(percent) + 99) / 100;
  return sorted[rank - 1];
}

Spread SpreadOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += value;
  return {.count = static_cast<int64_t>(values.size()),
          .mean = sum / static_cast<double>(values.size()),
          .p50 = NearestRank(values, 50),
          .p90 = NearestRank(values, 90),
          .p99 = NearestRank(values, 99),
          .max = values.back()};
}

Result<Slo> ParseSlo(std::string_view text) {
  Slo slo;
  const Status wrong = InvalidArgument(
      "\"{}\" is not an SLO such as ttft=500,tpot=50,e2e=10000 (milliseconds)", text);
  for (const std::string_view part : Split(text, ',')) {
    const std::string piece(part);
    const size_t equals = piece.find('=');
    if (equals == std::string::npos) return wrong;
    const std::string name = piece.substr(0, equals);
    char* end = nullptr;
    const char* begin = piece.c_str() + equals + 1;
    const double value = std::strtod(begin, &end);
    std::optional<double>* field = name == "ttft"   ? &slo.ttft_ms
                                   : name == "tpot" ? &slo.tpot_ms
                                   : name == "e2e"  ? &slo.e2e_ms
                                                    : nullptr;
    if (field == nullptr || *field || end == begin || *end != '\0' || !(value > 0) ||
        !std::isfinite(value)) {
      return wrong;
    }
    *field = value;
  }
  return slo;
}

bool Meets(const Slo& slo, const RequestRecord& record) {
  return record.ok() && Within(slo.ttft_ms, record.ttft().value_or(record.e2e())) &&
         Within(slo.tpot_ms, record.tpot()) && Within(slo.e2e_ms, record.e2e());
}

Summary::Summary(LoadDescription load, Slo slo) {
  result_.load = std::move(load);
  result_.slo = slo;
}

// The number of tokens comes from the server's usage, their times from the events with text.
void Summary::AddToRates(const RequestRecord& record) {
  LoadResult& r = result_;
  const auto in_window = [&load = r.load](double at) {
    return at >= load.ramp_seconds && (load.duration_seconds == 0 || at < load.duration_seconds);
  };
  if (in_window(record.intended)) ++r.offered_s;
  if (!record.ok()) return;
  const std::vector<double> at_end = {record.end};
  const std::vector<double>& came = record.text_at.empty() ? at_end : record.text_at;
  const auto part = static_cast<double>(std::count_if(came.begin(), came.end(), in_window)) /
                    static_cast<double>(came.size());
  r.output_tok_s += static_cast<double>(record.output_tokens()) * part;
  if (record.usage && in_window(came.front())) {
    r.total_tok_s += static_cast<double>(record.usage->prompt_tokens);
  }
  if (in_window(record.end)) {
    ++r.requests_s;
    if (Meets(r.slo, record)) ++r.goodput_s;
  }
  last_success_ = std::max(last_success_, record.end);
}

void Summary::Add(const RequestRecord& record) {
  LoadResult& r = result_;
  AddToRates(record);
  if (record.ok() && record.intended < r.load.ramp_seconds) return;
  ++r.requests;
  late_.push_back((record.sent - record.intended) * 1e3);
  if (!record.ok()) {
    ++r.errors;
    ++r.errors_by_kind[record.error_kind];
    if (r.first_error.empty()) r.first_error = record.error;
    return;
  }
  if (Meets(r.slo, record)) ++r.good;
  e2e_.push_back(record.e2e() * 1e3);
  if (const auto ttft = record.ttft()) ttft_.push_back(*ttft * 1e3);
  if (const auto tpot = record.tpot()) tpot_.push_back(*tpot * 1e3);
  for (size_t i = 1; i < record.text_at.size(); ++i) {
    itl_.push_back((record.text_at[i] - record.text_at[i - 1]) * 1e3);
  }
  r.output_tokens += record.output_tokens();
  if (record.usage) {
    r.prompt_tokens += record.usage->prompt_tokens;
    r.cached_tokens += record.usage->cached_tokens;
  } else {
    ++r.without_usage;
  }
}

LoadResult Summary::Finish(int32_t cancelled, double seconds, double cpu_seconds) {
  LoadResult& r = result_;
  r.cancelled = cancelled;
  r.seconds = seconds;
  const double end =
      r.load.duration_seconds > 0 ? std::min(r.load.duration_seconds, seconds) : last_success_;
  r.window_seconds = std::max(0.0, end - r.load.ramp_seconds);
  r.total_tok_s += r.output_tok_s;
  r.offered_s += cancelled;
  for (double* rate :
       {&r.output_tok_s, &r.total_tok_s, &r.requests_s, &r.offered_s, &r.goodput_s}) {
    *rate = r.window_seconds > 0 ? *rate / r.window_seconds : 0;
  }
  if (seconds > 0) r.client_cpu = cpu_seconds / seconds;
  r.ttft_ms = SpreadOf(std::move(ttft_));
  r.tpot_ms = SpreadOf(std::move(tpot_));
  r.itl_ms = SpreadOf(std::move(itl_));
  r.e2e_ms = SpreadOf(std::move(e2e_));
  r.late_ms = SpreadOf(std::move(late_));
  return std::move(result_);
}

std::string ResultJson(const LoadResult& r) {
  const LoadDescription& l = r.load;
  const WorkloadOptions& workload = l.workload;
  Json json = {{"url", l.url},
               {"endpoint", l.endpoint},
               {"model", l.model},
               {"server", l.owned_by},
               {"concurrency", l.pattern.concurrency},
               {"rate", l.pattern.rate},
               {"burstiness", l.pattern.burstiness},
               {"input", l.replayed.empty() ? Json(workload.input.text()) : Json()},
               {"output", l.replayed.empty() ? Json(workload.output.text()) : Json()},
               {"turns", workload.turns.text()},
               {"think_seconds", workload.think_seconds},
               {"shared_prefix", workload.shared_prefix},
               {"prefix_groups", workload.prefix_groups},
               {"seed", workload.seed},
               {"ramp_seconds", l.ramp_seconds},
               {"duration_seconds", l.duration_seconds},
               {"replayed", l.replayed},
               {"requests", r.requests},
               {"errors", r.errors},
               {"errors_by_kind", r.errors_by_kind},
               {"first_error", r.first_error},
               {"cancelled", r.cancelled},
               {"seconds", r.seconds},
               {"window_seconds", r.window_seconds},
               {"prompt_tokens", r.prompt_tokens},
               {"cached_tokens", r.cached_tokens},
               {"output_tokens", r.output_tokens},
               {"without_usage", r.without_usage},
               {"output_tok_s", r.output_tok_s},
               {"total_tok_s", r.total_tok_s},
               {"requests_s", r.requests_s},
               {"offered_s", r.offered_s},
               {"ttft_ms", Object(r.ttft_ms)},
               {"tpot_ms", Object(r.tpot_ms)},
               {"itl_ms", Object(r.itl_ms)},
               {"e2e_ms", Object(r.e2e_ms)},
               {"slo", Object(r.slo)}};
  json["good"] = r.slo.any() ? Json(r.good) : Json();
  json["goodput_s"] = r.slo.any() ? Json(r.goodput_s) : Json();
  json["late_ms"] = Object(r.late_ms);
  json["client_cpu"] = r.client_cpu;
  return Dump(json);
}

std::string ResultText(const LoadResult& r) {
  std::string text = fmt::format("{}: {} requests, {} failed, {:.2f} s\n", LoadName(r.load),
                                 r.requests, r.errors, r.seconds);
  for (const auto& [kind, count] : r.errors_by_kind) {
    text += fmt::format("  failed       {} × {}\n", count, kind);
  }
  if (r.cancelled > 0) text += fmt::format("  interrupted with {} running\n", r.cancelled);
  text += fmt::format("  tokens       {} in, {} of them cached, {} out\n", r.prompt_tokens,
                      r.cached_tokens, r.output_tokens);
  text += fmt::format("  throughput   {:.1f} tok/s out, {:.1f} tok/s in all, over {:.2f} s\n",
                      r.output_tok_s, r.total_tok_s, r.window_seconds);
  text +=
      fmt::format("  requests     {:.2f}/s done, {:.2f}/s offered\n", r.requests_s, r.offered_s);
  const auto line = [&text](const char* name, const Spread& s) {
    if (s.count == 0) return;
    text += fmt::format("  {:<12} p50 {:.1f}  p90 {:.1f}  p99 {:.1f}  max {:.1f} ms\n", name, s.p50,
                        s.p90, s.p99, s.max);
  };
  line("first token", r.ttft_ms);
  line("per token", r.tpot_ms);
  line("inter-token", r.itl_ms);
  line("end to end", r.e2e_ms);
  if (r.slo.any()) {
    text += fmt::format("  goodput      {:.2f} requests/s: {} of {} met the SLO\n", r.goodput_s,
                        r.good, r.requests);
  }
  text += fmt::format("  this client  {:.0f}% of a core, began p99 {:.1f} ms late\n",
                      r.client_cpu * 100, r.late_ms.p99);
  if (r.without_usage > 0) {
    text += fmt::format("  {} answers without usage; their events are counted as tokens\n",
                        r.without_usage);
  }
  return text;
}

std::string ResultTable(const std::vector<LoadResult>& results) {
  std::string text =
      fmt::format("{:<18} {:>9} {:>9} {:>10} {:>10} {:>10} {:>10} {:>7}\n", "load", "req/s",
                  "tok/s", "ttft p50", "ttft p99", "tpot p50", "e2e p99", "failed");
  const auto ms = [](const Spread& s, double value) {
    return s.count == 0 ? "-" : fmt::format("{:.1f}", value);
  };
  for (const LoadResult& r : results) {
    text += fmt::format("{:<18} {:>9.2f} {:>9.1f} {:>10} {:>10} {:>10} {:>10} {:>7}\n",
                        LoadName(r.load), r.requests_s, r.output_tok_s,
                        ms(r.ttft_ms, r.ttft_ms.p50), ms(r.ttft_ms, r.ttft_ms.p99),
                        ms(r.tpot_ms, r.tpot_ms.p50), ms(r.e2e_ms, r.e2e_ms.p99), r.errors);
  }
  return text;
}

std::string ClientWarning(const LoadResult& r) {
  std::string text;
  if (r.seconds < kShortestJudged) return text;
  if (r.client_cpu > kBusyCpu) {
    text += fmt::format(
        "this client was busy for {:.0f}% of the time and may have limited the load; use several "
        "clients\n",
        r.client_cpu * 100);
  }
  if (r.late_ms.p99 > kLateMs) {
    text += fmt::format(
        "this client began requests up to {:.0f} ms late (p99): its machine is too busy; "
        "latencies include this delay\n",
        r.late_ms.p99);
  }
  return text;
}

std::string TraceLine(const RequestRecord& record, int32_t load) {
  Json json = {{"load", load},
               {"conversation", record.conversation},
               {"turn", record.turn},
               {"time", record.intended},
               {"late_ms", (record.sent - record.intended) * 1e3},
               {"input", record.input_words},
               {"output", record.output_asked},
               {"status", record.http_status}};
  const auto ttft = record.ttft(), tpot = record.tpot();
  json["ttft_ms"] = ttft ? Json(*ttft * 1e3) : Json();
  json["tpot_ms"] = tpot ? Json(*tpot * 1e3) : Json();
  json["e2e_ms"] = record.e2e() * 1e3;
  json["prompt_tokens"] = record.usage ? Json(record.usage->prompt_tokens) : Json();
  json["cached_tokens"] = record.usage ? Json(record.usage->cached_tokens) : Json();
  json["output_tokens"] = record.output_tokens();
  json["usage"] = record.usage.has_value();
  Json at = Json::array();  // of each event with text, relative to the intended time
  for (const double seconds : record.text_at) {
    at.push_back(std::round((seconds - record.intended) * 1e6) / 1e3);
  }
  json["text_at_ms"] = std::move(at);
  json["error_kind"] = record.ok() ? Json() : Json(record.error_kind);
  json["error"] = record.ok() ? Json() : Json(record.error);
  return Dump(json);
}

}  // namespace tokamak::loadgen
