#include "base/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/error.h"

namespace tokamak {

Result<ChildProcess> ChildProcess::Start(const std::string& program,
                                         const std::vector<std::string>& arguments) {
  const auto not_started = [&program](int error) {
    return Unavailable("{}: cannot be started: {}", program, std::strerror(error));
  };
  // An emulator of another processor does not tell posix_spawn's caller that exec failed.
  if (::access(program.c_str(), X_OK) != 0) return not_started(errno);
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  // Threads of this process may block signals; the child begins with none blocked.
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const int error =
      ::posix_spawn(&pid, program.c_str(), &actions, &attributes, argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return not_started(error);
  return ChildProcess(pid);
}

ChildProcess::~ChildProcess() {
  if (pid_ == 0 || End()) return;
  Kill();
  ::waitpid(pid_, nullptr, 0);
}

std::optional<std::string> ChildProcess::End() {
  int status = 0;
  if (end_ || ::waitpid(pid_, &status, WNOHANG) != pid_) return end_;
  if (WIFSIGNALED(status)) {
    end_ = fmt::format("signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  } else {
    end_ = fmt::format("exit code {}", WEXITSTATUS(status));
  }
  return end_;
}

void ChildProcess::Kill() {
  if (!end_) ::kill(pid_, SIGKILL);
}

}  // namespace tokamak
