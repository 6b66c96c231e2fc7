// Ctrl-C, and being asked to end, as something that a command can look at.
#pragma once

namespace tokamak::cli {

// While it lives, Ctrl-C (SIGINT) raises the flag and does not end the program. One at a time.
class InterruptFlag {
 public:
  InterruptFlag();
  ~InterruptFlag();
  InterruptFlag(const InterruptFlag&) = delete;
  InterruptFlag& operator=(const InterruptFlag&) = delete;

  // From now on SIGTERM and SIGHUP raise the flag too, instead of ending the program.
  void CatchEnds();

  bool raised() const;
  bool ending() const;  // one of these two has come: Clear leaves the flag raised
  void Clear();
  // Readable, to poll(), while the flag is raised. Nothing else tells a thread that waits: the
  // signal may arrive on any thread, or just before the wait begins.
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace tokamak::cli
