// Makes Ctrl-C and requests to end visible to a command.
#pragma once

namespace tokamak::cli {

// While it lives, Ctrl-C (SIGINT) raises the flag instead of ending the program. Only one at a
// time.
class InterruptFlag {
 public:
  InterruptFlag();
  ~InterruptFlag();
  InterruptFlag(const InterruptFlag&) = delete;
  InterruptFlag& operator=(const InterruptFlag&) = delete;

  // From now on, SIGTERM and SIGHUP raise the flag too instead of ending the program.
  void CatchEnds();

  bool raised() const;
  bool ending() const;  // SIGTERM or SIGHUP has come: Clear leaves the flag raised
  void Clear();
  // Readable for poll() while the flag is raised. Only this reliably wakes a waiting thread: the
  // signal may arrive on any thread, or just before the wait begins.
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace tokamak::cli
