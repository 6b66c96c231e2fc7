// What a load on a server came to: percentiles, errors, goodput; as JSON and for people.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/serve_request.h"
#include "tokamak/status.h"

namespace tokamak::cli {

// Of times in milliseconds. Percentiles are nearest ranks (percentiles.h); all 0 without values.
struct Spread {
  int64_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};
Spread SpreadOf(std::vector<double> values);

// Limits in milliseconds that a good request keeps; those that are absent do not matter.
struct Slo {
  std::optional<double> ttft_ms, tpot_ms, e2e_ms;
  bool any() const { return ttft_ms || tpot_ms || e2e_ms; }
};
// "ttft=500,tpot=50,e2e=10000": some of them, each at most once.
Result<Slo> ParseSlo(std::string_view text);
// A request that failed does not. Without any text its first token counts as coming at its end;
// without a second token it has no time per token to be too long.
bool Meets(const Slo& slo, const RequestRecord& record);

// What was asked for: printed beside the results.
struct LoadDescription {
  std::string url = {}, endpoint = {}, model = {}, owned_by = {};
  int32_t concurrency = 0;  // 0: by rate, or replayed
  double rate = 0;          // conversations per second
  double burstiness = 1;
  std::string input = {}, output = {}, turns = {};  // distributions
  std::string replayed = {};                        // file; empty: none
  double think_seconds = 0;
  int32_t shared_prefix = 0;
  int32_t prefix_groups = 1;
  int32_t seed = 0;
  // The window: rates are of what happened from `ramp_seconds` until `duration_seconds`, or, where
  // that is 0, until the last success.
  double ramp_seconds = 0, duration_seconds = 0;
};

// Requests that were to begin before the window count nowhere but in its rates, unless they failed.
struct ServeBenchResult {
  LoadDescription load;
  int32_t requests = 0;  // that ended, whether well or not
  int32_t errors = 0;
  std::map<std::string, int32_t> errors_by_kind;
  std::string first_error;
  int32_t cancelled = 0;  // still running when the user interrupted; counted nowhere else
  double seconds = 0;     // from the beginning until the last request's end
  double window_seconds = 0;
  // Of requests that succeeded, as the server's usage counts.
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
  int32_t without_usage = 0;  // answers that had none: their events with text count as tokens
  // In the window, of requests that succeeded: tokens that came, prompts whose answer began, and
  // requests that ended.
  double output_tok_s = 0;
  double total_tok_s = 0;  // prompt and output
  double requests_s = 0;
  double offered_s = 0;  // requests per second of the window that were to begin in it
  Spread ttft_ms;        // from the intended time to the first text
  Spread tpot_ms;        // a request's mean time per token after the first
  Spread itl_ms;         // between events with text, of all requests together
  Spread e2e_ms;         // from the intended time to the end
  Slo slo;
  int32_t good = 0;       // requests that met the SLO
  double goodput_s = 0;   // of requests_s, those that met it
  Spread late_ms;         // how long after the intended time this client began
  double client_cpu = 0;  // of one core, that this client's thread was busy
};

// Takes the records of a run one by one.
class Summary {
 public:
  Summary(LoadDescription load, Slo slo);

  void Add(const RequestRecord& record);
  // After `seconds`. `cpu_seconds`: of this client's thread meanwhile.
  ServeBenchResult Finish(int32_t cancelled, double seconds, double cpu_seconds);

  int32_t ended() const { return result_.requests; }
  int32_t errors() const { return result_.errors; }
  int64_t output_tokens() const { return result_.output_tokens; }

 private:
  void AddToRates(const RequestRecord& record);

  ServeBenchResult result_;  // until Finish, its rates are amounts
  double last_success_ = 0;
  std::vector<double> ttft_, tpot_, itl_, e2e_, late_;  // ms
};

std::string ServeBenchJson(const ServeBenchResult& result);
// For people: a block of lines, and a line each for when there are several.
std::string ServeBenchText(const ServeBenchResult& result);
std::string ServeBenchTable(const std::vector<ServeBenchResult>& results);
// Warnings about the measurement itself; empty when there is nothing to say.
std::string ClientWarning(const ServeBenchResult& result);
// One line of --trace: also what --replay reads.
std::string TraceLine(const RequestRecord& record, int32_t load);

}  // namespace tokamak::cli
