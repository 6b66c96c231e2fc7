// Counts and logs every answer of the server.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>

#include "server/monitor/access_log.h"
#include "server/transport/http.h"

namespace tokamak {

struct HttpCounters {
  std::map<int, int64_t> responses;  // by HTTP status; begun streams count when they begin
  int64_t clients_gone = 0;          // before their answer was complete
};

// Used on the I/O thread alone. Exchanges that it watches keep it alive.
class Observer : public std::enable_shared_from_this<Observer> {
 public:
  // `log` may be null.
  explicit Observer(std::unique_ptr<AccessLog> log) : log_(std::move(log)) {}

  // An answer begins.
  void OnAnswer(int status) { ++counters_.responses[status]; }
  // What a handler is to use in place of `exchange`.
  std::shared_ptr<HttpExchange> Watch(std::shared_ptr<HttpExchange> exchange);
  // An answer that was given without a handler: the request could not be read, or was refused.
  // `method` and `path` are empty where they are not known.
  void OnRefused(std::string_view method, std::string_view path, int status, size_t bytes);

  const HttpCounters& counters() const { return counters_; }
  int64_t lines_dropped() const { return log_ == nullptr ? 0 : log_->dropped(); }

 private:
  class Watched;

  std::unique_ptr<AccessLog> log_;
  HttpCounters counters_;
};

}  // namespace tokamak
