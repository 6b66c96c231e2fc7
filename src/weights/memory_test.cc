#include "weights/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tokamak {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A directory tree that replaces /.
class MemoryTest : public testing::Test {
 protected:
  MemoryTest() : root_(testing::TempDir() + "memory_test_root") {
    std::filesystem::remove_all(root_);
    Write("/proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:   4000 kB\n");
  }
  ~MemoryTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  MemoryBudget Budget() {
    const Result<MemoryBudget> budget = AvailableMemory(root_);
    EXPECT_TRUE(budget.ok()) << budget.status().ToString();
    return budget.ok() ? *budget : MemoryBudget();
  }

  const std::string root_;
};

TEST_F(MemoryTest, IsTheMachinesMemoryWithoutCgroups) {
  EXPECT_EQ(Budget().available_bytes, 4000u * 1024);
  EXPECT_EQ(Budget().limited_by, "the machine");
}

TEST_F(MemoryTest, IsUnknownWithoutMeminfo) {
  Write("/proc/meminfo", "MemTotal: 9000 kB\n");
  EXPECT_FALSE(AvailableMemory(root_).ok());
}

TEST_F(MemoryTest, ACgroupV2LimitsItAndItsInactiveCacheCountsAsFree) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "2000000\n");
  Write("/sys/fs/cgroup/a/b/memory.current", "1500000\n");
  Write("/sys/fs/cgroup/a/b/memory.stat", "anon 5\ninactive_file 300000\n");
  EXPECT_EQ(Budget().available_bytes, 800000u);
  EXPECT_THAT(Budget().limited_by, HasSubstr("/a/b"));
}

TEST_F(MemoryTest, AParentCgroupLimitsIt) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/b/memory.current", "1000\n");
  Write("/sys/fs/cgroup/a/memory.max", "100000\n");
  Write("/sys/fs/cgroup/a/memory.current", "150000\n");
  EXPECT_EQ(Budget().available_bytes, 0u);
}

TEST_F(MemoryTest, ACgroupV1LimitsIt) {
  Write("/proc/self/cgroup", "5:cpu:/x\n4:foo,memory:/docker/1\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "3000000");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000");
  EXPECT_EQ(Budget().available_bytes, 2000000u);
}

TEST_F(MemoryTest, MalformedCgroupFilesDoNotLimitIt) {
  Write("/proc/self/cgroup", "nonsense\n::\n0::\n0::/../up\n");
  Write("/sys/fs/cgroup/memory.max", "-\n");
  EXPECT_EQ(Budget().limited_by, "the machine");
}

TEST(CheckFitsInMemory, ErrorContainsBothNumbers) {
  const MemoryBudget budget = {uint64_t{64} << 20, "the machine"};
  EXPECT_TRUE(CheckFitsInMemory("m.gguf: the weights", 64 << 20, budget).ok());
  const Status status = CheckFitsInMemory("m.gguf: the weights", 100 << 20, budget);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.ToString(), AllOf(HasSubstr("m.gguf: the weights need 100 MiB"),
                                       HasSubstr("the machine has only 64 MiB")));
}

}  // namespace
}  // namespace tokamak
