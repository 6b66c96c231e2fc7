// Putting load on a server and measuring what comes back.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/serve_report.h"
#include "cli/serve_request.h"
#include "cli/serve_workload.h"
#include "server/transport/http_caller.h"
#include "tokamak/status.h"

namespace tokamak::cli {

// How requests come: one of the three.
struct LoadPattern {
  int32_t concurrency = 0;  // conversations at a time: one begins when another ends
  double rate = 0;          // conversations per second, however many run; of a replay, on average
  double burstiness = 1;    // of the rate: Arrivals
  const std::vector<ReplayedRequest>* replayed = nullptr;  // when each comes, and how long it is
};

struct ServeLoad {
  Url url;
  HttpCaller::Options connection;
  std::string api_key;  // empty: none
  RequestShape shape;
  WorkloadOptions workload;
  LoadPattern pattern;
  uint64_t run = 0;  // words of its own: Workload
  // No request begins after so many, or after so long; 0: no limit. What runs then is waited for.
  int64_t requests = 64;
  double duration_seconds = 0;
  double request_seconds = 0;  // a request fails that takes longer altogether; 0: none does
};

// How far a load is.
struct LoadProgress {
  double seconds = 0;
  int64_t running = 0;
};

struct LoadObserver {
  // Every request that ended, in the order of their ends. On the thread that runs the load.
  std::function<void(const RequestRecord&)> on_record;
  // About ten times a second, and once at the end. False ends the load at once.
  std::function<bool(const LoadProgress&)> go_on;
};

struct LoadTotals {
  int64_t cancelled = 0;   // requests that ran when the load was ended
  double seconds = 0;      // all that it took
  double cpu_seconds = 0;  // of this thread
};

// Runs the whole load, each request streamed. Requests that fail are records like the others; an
// error is returned only for a host that cannot be found.
Result<LoadTotals> RunServeLoad(const ServeLoad& load, const LoadObserver& observer);

}  // namespace tokamak::cli
