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

// A signal handler can reach nothing else.
std::atomic<bool> interrupted{false};
std::atomic<int> interrupt_fd{-1};

void OnInterrupt(int /*signal*/) {
  const int saved = errno;
  interrupted.store(true, std::memory_order_relaxed);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(interrupt_fd.load(), &one, sizeof(one));
  errno = saved;
}

}  // namespace

InterruptFlag::InterruptFlag() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  CHECK(fd_ >= 0);
  Clear();
  interrupt_fd.store(fd_);
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  ::sigaction(SIGINT, &action, nullptr);
}

InterruptFlag::~InterruptFlag() {
  std::signal(SIGINT, SIG_DFL);
  interrupt_fd.store(-1);
  ::close(fd_);
}

bool InterruptFlag::raised() const { return interrupted.load(std::memory_order_relaxed); }

void InterruptFlag::Clear() {
  interrupted.store(false, std::memory_order_relaxed);
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t drained = ::read(fd_, &count, sizeof(count));
}

}  // namespace tokamak::cli
