#include "server/monitor/access_log.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "server/json_text.h"

namespace tokamak {
namespace {

constexpr size_t kMaxPathBytes = 256;  // longest logged path
constexpr int kOpenFlags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC;
constexpr mode_t kMode = 0640;
constexpr size_t kPiece = 4096;  // PIPE_BUF on Linux
constexpr int kPollMillis = 100;
constexpr int kLastWordsPolls = 20;

// "2026-11-21T23:40:00.123Z"
std::string Iso8601(double unix_time) {
  const auto millis = static_cast<int64_t>(std::floor(unix_time * 1e3));
  const auto seconds = static_cast<std::time_t>(millis / 1000);
  return fmt::format("{:%FT%T}.{:03}Z", fmt::gmtime(seconds), millis % 1000);
}

double Millis(double seconds) { return std::round(seconds * 1e6) / 1e3; }

}  // namespace

std::string FormatLogLine(const AccessLogEntry& entry) {
  nlohmann::ordered_json line = {{"time", Iso8601(entry.time)}};
  if (!entry.notes.id.empty()) line["id"] = entry.notes.id;
  line["method"] = entry.method;
  line["path"] = entry.path.substr(0, kMaxPathBytes);
  line["status"] = entry.status;
  line["bytes"] = entry.bytes;
  line["duration_ms"] = Millis(entry.duration);
  line["client_gone"] = entry.client_gone;
  if (!entry.notes.usage.empty()) {
    const RequestTimings timings = entry.notes.TotalTimings();
    const Usage usage = entry.notes.TotalUsage();
    line["queue_ms"] = Millis(timings.queued_seconds);
    line["prefill_ms"] = Millis(timings.prefill_seconds);
    line["decode_ms"] = Millis(timings.decode_seconds);
    line["preemptions"] = timings.preemptions;
    line["steps"] = timings.steps;
    line["draft_n"] = timings.drafts;
    line["draft_n_accepted"] = timings.accepted_drafts;
    line["prompt_tokens"] = usage.prompt_tokens;
    line["cached_tokens"] = usage.cached_tokens;
    line["output_tokens"] = usage.completion_tokens;
    line["finish_reasons"] = nlohmann::ordered_json::array();
    for (const FinishReason reason : entry.notes.finish_reasons) {
      line["finish_reasons"].push_back(FinishReasonName(reason));
    }
  }
  return DumpJson(line);
}

Result<std::unique_ptr<AccessLog>> AccessLog::Open(const std::string& path) {
  if (path == "-") return std::unique_ptr<AccessLog>(new AccessLog("", STDOUT_FILENO));
  const int fd = ::open(path.c_str(), kOpenFlags, kMode);
  if (fd < 0) {
    return InvalidArgument("access_log={}: cannot be opened: {}", path, std::strerror(errno));
  }
  return std::unique_ptr<AccessLog>(new AccessLog(path, fd));
}

AccessLog::AccessLog(std::string path, int fd) : path_(std::move(path)), fd_(fd) {
  thread_ = std::thread([this] { Run(); });
}

AccessLog::~AccessLog() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
    wake_.NotifyAll();
  }
  thread_.join();
  if (!path_.empty() && fd_ >= 0) ::close(fd_);
}

void AccessLog::Write(const AccessLogEntry& entry) {
  const std::string line = FormatLogLine(entry) + "\n";
  MutexLock lock(mutex_);
  if (waiting_.size() + line.size() > kMaxWaitingBytes) {
    ++dropped_;
    return;
  }
  if (waiting_.empty()) wake_.NotifyAll();
  waiting_ += line;
}

int64_t AccessLog::dropped() const {
  MutexLock lock(mutex_);
  return dropped_;
}

void AccessLog::Run() {
  for (;;) {
    std::string lines;
    {
      MutexLock lock(mutex_);
      while (waiting_.empty() && !stop_) wake_.Wait(mutex_);
      if (waiting_.empty()) return;
      lines = std::exchange(waiting_, std::string());
    }
    if (!path_.empty()) ReopenIfMoved();
    WriteAll(lines);
  }
}

void AccessLog::ReopenIfMoved() {
  struct stat named {
  }, open{};
  const bool same = fd_ >= 0 && ::stat(path_.c_str(), &named) == 0 && ::fstat(fd_, &open) == 0 &&
                    named.st_dev == open.st_dev && named.st_ino == open.st_ino;
  if (same) return;
  const int fd = ::open(path_.c_str(), kOpenFlags, kMode);
  if (fd < 0) return;  // keep writing to the old file
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

// A writable pipe takes this much without blocking (POSIX), so a reader that has stopped delays the
// end of the process by at most kLastWordsPolls.
void AccessLog::WriteAll(const std::string& lines) {
  size_t done = 0;
  int polls = 0;
  while (done < lines.size()) {
    struct pollfd ready = {.fd = fd_, .events = POLLOUT, .revents = 0};
    const int polled = ::poll(&ready, 1, kPollMillis);
    if (polled == 0 && (!stopping() || ++polls < kLastWordsPolls)) continue;
    const ssize_t written =
        polled <= 0 ? -1 : ::write(fd_, lines.data() + done, std::min(lines.size() - done, kPiece));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      if (!std::exchange(failing_, true)) {
        LogError("the access log cannot be written: {}",
                 polled == 0 ? "nobody reads it" : std::strerror(errno));
      }
      MutexLock lock(mutex_);
      dropped_ += std::count(lines.begin() + static_cast<std::ptrdiff_t>(done), lines.end(), '\n');
      return;
    }
    failing_ = false;
    done += static_cast<size_t>(written);
  }
}

bool AccessLog::stopping() const {
  MutexLock lock(mutex_);
  return stop_;
}

}  // namespace tokamak
