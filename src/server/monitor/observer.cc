#include "server/monitor/observer.h"

#include <utility>

namespace tokamak {
namespace {

double UnixNow() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

Observer::Request::Request(Observer& observer, const ResponseWriter& writer)
    : observer_(observer),
      writer_(writer),
      time_(UnixNow()),
      start_(std::chrono::steady_clock::now()) {}

Observer::Request::~Request() {
  const bool gone = writer_.gone() && !writer_.finished();
  if (gone) ++observer_.counters_.clients_gone;
  if (observer_.log_ == nullptr) return;
  const auto duration = std::chrono::steady_clock::now() - start_;
  observer_.log_->Write({.time = time_,
                         .method = writer_.request().method,
                         .path = writer_.request().path,
                         .status = writer_.status(),
                         .bytes = writer_.body_bytes(),
                         .duration = std::chrono::duration<double>(duration).count(),
                         .client_gone = gone,
                         .notes = writer_.notes});
}

void Observer::OnRefused(std::string_view method, std::string_view path, int status, size_t bytes) {
  if (log_ == nullptr) return;
  AccessLogEntry entry;
  entry.time = UnixNow();
  entry.method = method;
  entry.path = path;
  entry.status = status;
  entry.bytes = bytes;
  log_->Write(entry);
}

}  // namespace tokamak
