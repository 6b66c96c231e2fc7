// The results of a load on a server: percentiles, errors and goodput, as JSON and as text.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loadgen/request.h"
#include "loadgen/workload.h"
#include "tokamak/status.h"

namespace tokamak::loadgen {

// Nearest rank: the smallest of the values such that at least `percent` (in (0, 100]) percent of
// them do not exceed it. `sorted` ascends; returns 0 if it is empty.
double NearestRank(const std::vector<double>& sorted, int percent);

// Times in milliseconds. Percentiles are nearest ranks; all are 0 without values.
struct Spread {
  int64_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};
Spread SpreadOf(std::vector<double> values);

// Limits in milliseconds for a good request; absent ones do not matter.
struct Slo {
  std::optional<double> ttft_ms, tpot_ms, e2e_ms;
  bool any() const { return ttft_ms || tpot_ms || e2e_ms; }
};
// Parses "ttft=500,tpot=50,e2e=10000": any of them, each at most once.
Result<Slo> ParseSlo(std::string_view text);
// Whether a request meets the SLO; failed ones do not. Without text its end counts as its first
// token. With fewer than two tokens its time per token is not limited.
bool Meets(const Slo& slo, const RequestRecord& record);

// The requested load, printed with the results.
struct LoadDescription {
  std::string url = {}, endpoint = {}, model = {}, owned_by = {};
  LoadPattern pattern = {};
  WorkloadOptions workload = {};
  std::string replayed = {};  // file; empty: none
  // Rates are measured in the window from `ramp_seconds` to `duration_seconds` (if 0, to the last
  // success).
  double ramp_seconds = 0, duration_seconds = 0;
};

// A request that was scheduled to begin before the window counts only in the rates, unless it
// failed.
struct LoadResult {
  LoadDescription load;
  int32_t requests = 0;  // that ended, with success or not
  int32_t errors = 0;
  std::map<std::string, int32_t> errors_by_kind;
  std::string first_error;
  int32_t cancelled = 0;  // in flight when the user interrupted; counted nowhere else
  double seconds = 0;     // from the start to the end of the last request
  double window_seconds = 0;
  // From the server's usage for successful requests.
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
  int32_t without_usage = 0;  // answers without usage: their events with text count as tokens
  // Rates in the window, over successful requests: output tokens that arrived, tokens of prompts
  // whose answer began, and requests that ended.
  double output_tok_s = 0;
  double total_tok_s = 0;  // prompt and output
  double requests_s = 0;
  double offered_s = 0;  // requests per second intended to begin in the window
  Spread ttft_ms;        // from the intended time to the first text
  Spread tpot_ms;        // a request's mean time per token after the first
  Spread itl_ms;         // between events with text, over all requests
  Spread e2e_ms;         // from the intended time to the end
  Slo slo;
  int32_t good = 0;       // requests that met the SLO
  double goodput_s = 0;   // requests_s that met the SLO
  Spread late_ms;         // how long after the intended time this client sent
  double client_cpu = 0;  // fraction of a core that this client's thread used
};

// Collects the records of a run.
class Summary {
 public:
  Summary(LoadDescription load, Slo slo);

  void Add(const RequestRecord& record);
  // `cpu_seconds`: used by this client's thread in these `seconds`.
  LoadResult Finish(int32_t cancelled, double seconds, double cpu_seconds);

  int32_t ended() const { return result_.requests; }
  int32_t errors() const { return result_.errors; }
  int64_t output_tokens() const { return result_.output_tokens; }

 private:
  void AddToRates(const RequestRecord& record);

  LoadResult result_;  // its rates are amounts until Finish
  double last_success_ = 0;
  std::vector<double> ttft_, tpot_, itl_, e2e_, late_;  // ms
};

std::string ResultJson(const LoadResult& result);
// Text for people: a block of lines, and a table with one line per load.
std::string ResultText(const LoadResult& result);
std::string ResultTable(const std::vector<LoadResult>& results);
// Warnings about the measurement itself; empty if there are none.
std::string ClientWarning(const LoadResult& result);
// One line of --trace, which --replay can read.
std::string TraceLine(const RequestRecord& record, int32_t load);

}  // namespace tokamak::loadgen
