// Puts load on a server and measures the answers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "loadgen/report.h"
#include "loadgen/request.h"
#include "loadgen/workload.h"
#include "server/transport/http_caller.h"
#include "tokamak/status.h"

namespace tokamak::loadgen {

struct LoadSpec {
  Url url;
  HttpCaller::Options connection;
  std::string api_key;  // empty: none
  RequestShape shape;
  WorkloadOptions workload;
  LoadPattern pattern;
  uint64_t run = 0;  // selects the words: see Workload
  // Limits on the number of requests and on the time in which requests begin; 0: no limit. Requests
  // in flight then run to their end.
  int64_t requests = 64;
  double duration_seconds = 0;
  double request_seconds = 0;  // a request that takes longer in all fails; 0: no limit
};

struct LoadProgress {
  double seconds = 0;
  int64_t running = 0;
};

struct LoadObserver {
  // Called for each request in the order in which they end, on the thread that runs the load.
  std::function<void(const RequestRecord&)> on_record;
  // Called about ten times a second and once at the end. False ends the load at once.
  std::function<bool(const LoadProgress&)> go_on;
};

struct LoadTotals {
  int64_t cancelled = 0;   // requests in flight when the load was ended
  double seconds = 0;      // duration of the load
  double cpu_seconds = 0;  // of this thread
};

// Runs the whole load and streams each request. Failed requests are records like the others; the
// only error returned is that the host cannot be found.
Result<LoadTotals> RunLoad(const LoadSpec& load, const LoadObserver& observer);

}  // namespace tokamak::loadgen
