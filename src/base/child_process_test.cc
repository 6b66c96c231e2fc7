#include "base/child_process.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "base/file.h"

namespace tokamak {
namespace {

std::string EndOf(ChildProcess& process) {
  for (int i = 0; i < 3000; ++i) {
    if (const auto end = process.End()) return *end;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return "runs";
}

TEST(ChildProcess, SaysHowItEnded) {
  auto exits = ChildProcess::Start("/bin/sh", {"-c", "exit 7"});
  ASSERT_TRUE(exits.ok());
  EXPECT_EQ(EndOf(*exits), "exit code 7");
  EXPECT_EQ(EndOf(*exits), "exit code 7");

  auto dies = ChildProcess::Start("/bin/sh", {"-c", "kill -TERM $$"});
  ASSERT_TRUE(dies.ok());
  EXPECT_EQ(EndOf(*dies), "signal 15 (Terminated)");
}

TEST(ChildProcess, IsKilledWithItsObject) {
  pid_t pid = 0;
  {
    auto sleeps = ChildProcess::Start("/bin/sleep", {"1000"});
    ASSERT_TRUE(sleeps.ok());
    EXPECT_FALSE(sleeps->End().has_value());
    pid = sleeps->pid();
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST(ChildProcess, HasNoFilesOfItsParentAndAGroupOfItsOwn) {
  // Not closed on exec.
  std::FILE* const file = std::fopen("/dev/null", "w");
  ASSERT_NE(file, nullptr);
  auto looks = ChildProcess::Start("/bin/sh",
                                   {"-c",
                                    "test -z \"$(cat)\" && test $(ls /proc/$$/fd | wc -l) -le 4 && "
                                    "test $(cut -d ' ' -f 5 /proc/$$/stat) = $$"});
  ASSERT_TRUE(looks.ok());
  EXPECT_EQ(EndOf(*looks), "exit code 0");
  std::fclose(file);
}

TEST(ChildProcess, NamesAProgramThatCannotBeStarted) {
  const auto none = ChildProcess::Start("/no/such/program", {});
  EXPECT_EQ(none.status().message(),
            "/no/such/program: cannot be started: No such file or directory");
}

}  // namespace
}  // namespace tokamak
