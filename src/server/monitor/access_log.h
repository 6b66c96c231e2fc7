// The access log: one line of JSON per request.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "server/monitor/request_notes.h"
#include "server/transport/http.h"
#include "tokamak/status.h"

namespace tokamak {

// The content of a line. Never holds a body, a query or a key.
struct AccessLogEntry {
  double time = 0;  // when the request had arrived; seconds since 1970
  std::string method;
  std::string path;     // empty: the request line could not be read
  int status = 0;       // 0: the client left before the response began
  uint64_t bytes = 0;   // of the response's body
  double duration = 0;  // seconds until the connection had the response
  bool client_gone = false;
  RequestNotes notes;
};

// Returns one JSON object, without a newline.
std::string FormatLogLine(const AccessLogEntry& entry);

// Appends lines to a file on a thread of its own, so a slow disk delays no request. Drops and
// counts lines while more than kMaxWaitingBytes wait. If the file was moved or removed (log
// rotation), the next line creates it again; no signal is needed. Thread-safe.
class AccessLog {
 public:
  static constexpr size_t kMaxWaitingBytes = 4 << 20;

  // "-" is standard output.
  static Result<std::unique_ptr<AccessLog>> Open(const std::string& path);
  // Writes the waiting lines.
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  void Write(const AccessLogEntry& entry) EXCLUDES(mutex_);
  int64_t dropped() const EXCLUDES(mutex_);

 private:
  AccessLog(std::string path, int fd);
  void Run() EXCLUDES(mutex_);
  void ReopenIfMoved();
  void WriteAll(const std::string& lines) EXCLUDES(mutex_);
  bool stopping() const EXCLUDES(mutex_);

  const std::string path_;  // empty: standard output
  int fd_;                  // the thread's
  bool failing_ = false;    // the thread's: the last write failed, and a message said so
  mutable Mutex mutex_;
  CondVar wake_;
  std::string waiting_ GUARDED_BY(mutex_);
  int64_t dropped_ GUARDED_BY(mutex_) = 0;
  bool stop_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tokamak
