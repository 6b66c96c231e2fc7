// A program that runs as a child of this process.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "tokamak/status.h"

namespace tokamak {

// The destructor kills the child, if it runs, and waits for its end.
class ChildProcess {
 public:
  // `program`: its path. The child's stdin is empty, its stdout is this process's stderr, and it
  // has no other file of this process. It is the leader of a process group of its own, so that keys
  // on a terminal do not reach it.
  static Result<ChildProcess> Start(const std::string& program,
                                    const std::vector<std::string>& arguments);
  ChildProcess(ChildProcess&& other) noexcept : pid_(other.pid_), end_(std::move(other.end_)) {
    other.pid_ = 0;
  }
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // How the child ended: "exit code 1" or "signal 9 (Killed)". nullopt while it runs.
  std::optional<std::string> End();
  void Kill();

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_ = 0;
  std::optional<std::string> end_;
};

}  // namespace tokamak
