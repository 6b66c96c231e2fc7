// /metrics: the counts of engine and server, in Prometheus' text format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/monitor/observer.h"
#include "tokamak/engine_stats.h"

namespace tokamak {

inline constexpr std::string_view kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

struct MetricsInput {
  EngineStats engine;
  HttpCounters http;
  std::string version;      // of this program
  std::string fingerprint;  // of the engine
  std::string model;        // the name that clients use
  std::string backend;
  bool takes_images = false;  // the model does
  bool healthy = true;        // what /health says
  size_t preparing = 0;       // requests that the engine does not have yet
  int64_t log_lines_dropped = 0;
  int64_t unknown_fields = 0;     // ignored fields of requests
  double mask_table_seconds = 0;  // as in ModelInfo
  int64_t mask_table_bytes = 0;
  double started = 0;  // start of the server, seconds since 1970
};

// Returns text exposition format 0.0.4.
std::string FormatMetrics(const MetricsInput& input);

}  // namespace tokamak
