// Counts and logs every answer of the server.
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
  std::map<int, int64_t> responses;  // by HTTP status; begun streams count when they begin
  int64_t clients_gone = 0;          // before their answer was complete
};

// Used on the I/O thread alone.
class Observer {
 public:
  // `log` may be null.
  explicit Observer(std::unique_ptr<AccessLog> log) : log_(std::move(log)) {}

  // An answer begins.
  void OnResponse(int status) { ++counters_.responses[status]; }
  // Writes the line of a request when it ends: the scope is the coroutine that answers it.
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
  // Writes the line of a request that no handler has seen: it could not be read, or was refused.
  // `method` and `path` are empty where they are not known.
  void OnRefused(std::string_view method, std::string_view path, int status, size_t bytes);

  const HttpCounters& counters() const { return counters_; }
  int64_t lines_dropped() const { return log_ == nullptr ? 0 : log_->dropped(); }

 private:
  const std::unique_ptr<AccessLog> log_;
  HttpCounters counters_;
};

}  // namespace tokamak
