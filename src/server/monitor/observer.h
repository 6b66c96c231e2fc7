// Counts responses and logs requests.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>

#include "server/monitor/access_log.h"
#include "server/transport/response_writer.h"

namespace tokamak {

struct HttpCounters {
  std::map<int, int64_t> responses;  // by HTTP status; a stream counts when it begins
  int64_t clients_gone = 0;          // before their response was complete
};

// Used only on the I/O thread.
class Observer {
 public:
  // `log` may be null.
  explicit Observer(std::unique_ptr<AccessLog> log) : log_(std::move(log)) {}

  // A response begins.
  void OnResponse(int status) { ++counters_.responses[status]; }
  // Logs a request when it ends. Lives in the coroutine that handles the request.
  class Request {
   public:
    Request(Observer& observer, const ResponseWriter& writer);
    ~Request();
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;

   private:
    Observer& observer_;
    const ResponseWriter& writer_;
    const double time_;
    const std::chrono::steady_clock::time_point start_;
  };
  // Logs a request that was refused before a handler saw it. `method` and `path` are empty if they
  // could not be read.
  void OnRefused(std::string_view method, std::string_view path, int status, size_t bytes);

  const HttpCounters& counters() const { return counters_; }
  int64_t lines_dropped() const { return log_ == nullptr ? 0 : log_->dropped(); }

 private:
  const std::unique_ptr<AccessLog> log_;
  HttpCounters counters_;
};

}  // namespace tokamak
