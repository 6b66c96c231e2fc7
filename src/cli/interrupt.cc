#include "cli/interrupt.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>

#include "base/check.h"

namespace tokamak::cli {
namespace {

// Global, because a signal handler can reach nothing else.
std::atomic<bool> interrupted{false};
std::atomic<bool> asked_to_end{false};
std::atomic<int> interrupt_fd{-1};

void OnSignal(int signal) {
  const int saved = errno;
  if (signal != SIGINT) asked_to_end.store(true, std::memory_order_relaxed);
  interrupted.store(true, std::memory_order_relaxed);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(interrupt_fd.load(), &one, sizeof(one));
  errno = saved;
}

void Catch(int signal) {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

InterruptFlag::InterruptFlag() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  CHECK(fd_ >= 0);
  asked_to_end.store(false);
  Clear();
  interrupt_fd.store(fd_);
  Catch(SIGINT);
}

InterruptFlag::~InterruptFlag() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
  interrupt_fd.store(-1);
  ::close(fd_);
}

void InterruptFlag::CatchEnds() {
  Catch(SIGTERM);
  Catch(SIGHUP);
}

bool InterruptFlag::ending() const { return asked_to_end.load(std::memory_order_relaxed); }

bool InterruptFlag::raised() const { return interrupted.load(std::memory_order_relaxed); }

void InterruptFlag::Clear() {
  interrupted.store(false, std::memory_order_relaxed);
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t drained = ::read(fd_, &count, sizeof(count));
  if (ending()) OnSignal(SIGTERM);  // a request to end is permanent
}

}  // namespace tokamak::cli
