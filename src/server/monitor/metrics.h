// /metrics: what the engine and the server count, in Prometheus' text format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/monitor/observer.h"
#include "tokamak/engine.h"

namespace tokamak {

inline constexpr std::string_view kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

struct MetricsInput {
  EngineStats engine;
  HttpCounters http;
  std::string version;      // of the program
  std::string fingerprint;  // of the engine
  std::string model;        // as clients call it
  std::string backend;
  bool healthy = true;   // what /health says
  size_t preparing = 0;  // calls that the engine does not have yet
  int64_t log_lines_dropped = 0;
  int64_t unknown_fields = 0;  // of requests
  double started = 0;          // the server, seconds since 1970
};

// Text exposition format 0.0.4. The engine's numbers are all of one moment.
std::string FormatMetrics(const MetricsInput& input);

}  // namespace tokamak
