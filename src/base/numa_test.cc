#include "base/numa.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace tokamak {
namespace {

CpuList Allowed() {
  cpu_set_t set;
  EXPECT_EQ(::sched_getaffinity(0, sizeof(set), &set), 0);
  CpuList cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// A folder like Linux's with the given files.
class Folder {
 public:
  explicit Folder(const std::string& online)
      : path(::testing::TempDir() + "/numa_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(path);
    std::ofstream(path + "/online") << online << "\n";
  }
  ~Folder() { std::filesystem::remove_all(path); }
  void Add(int node, const std::string& cpus) const {
    std::filesystem::create_directories(path + "/node" + std::to_string(node));
    std::ofstream(path + "/node" + std::to_string(node) + "/cpulist") << cpus << "\n";
  }

  const std::string path;
};

TEST(Numa, NodesHaveTheCpusThatTheProcessMayUse) {
  const CpuList allowed = Allowed();
  const std::string first = std::to_string(allowed.front()), last = std::to_string(allowed.back());
  const Folder folder("0,2-4");
  folder.Add(0, first);
  folder.Add(1, first);  // is not online
  folder.Add(2, "");     // has memory alone
  folder.Add(3, "1000-1023");
  folder.Add(4, "1022-1023," + last);
  EXPECT_EQ(ReadNumaNodes(folder.path),
            (std::vector<CpuList>{{allowed.front()}, {allowed.back()}}));
}

TEST(Numa, WhatIsNotThereOrUnreadableIsNoNode) {
  EXPECT_TRUE(ReadNumaNodes("/no/such/folder").empty());
  for (const char* online : {"", "-1", "x", "3-", "99999999999"}) {
    const Folder folder(online);
    folder.Add(0, "0");
    EXPECT_TRUE(ReadNumaNodes(folder.path).empty()) << online;
  }
}

TEST(Numa, ThisMachineHasAllCpusOnItsNodes) {
  CpuList all;
  for (const CpuList& node : ReadNumaNodes()) all.insert(all.end(), node.begin(), node.end());
  if (all.empty()) GTEST_SKIP() << "the system does not say";
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, Allowed());
}

TEST(Numa, RanksShareNodesOrHaveSeveral) {
  const std::vector<CpuList> nodes = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  const auto ranks = [&](int32_t size) {
    std::vector<CpuList> cpus;
    for (int32_t rank = 0; rank < size; ++rank) cpus.push_back(CpusOfRank(nodes, rank, size));
    return cpus;
  };
  EXPECT_EQ(ranks(2), (std::vector<CpuList>{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(ranks(3), (std::vector<CpuList>{{0, 4}, {1, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(ranks(4), nodes);
  EXPECT_EQ(ranks(8),
            (std::vector<CpuList>{{0, 4}, {0, 4}, {1, 5}, {1, 5}, {2, 6}, {2, 6}, {3, 7}, {3, 7}}));
  EXPECT_TRUE(CpusOfRank(nodes, 0, 1).empty());
  EXPECT_TRUE(CpusOfRank({{0, 1}}, 1, 2).empty());
}

TEST(Numa, WhatAThreadStartsStaysOnItsCpus) {
  const CpuList before = Allowed();
  const CpuList one = {before.back()};
  CpuList of_thread;
  {
    const OnCpus scope(one);
    EXPECT_EQ(Allowed(), one);
    std::thread([&] { of_thread = Allowed(); }).join();
  }
  EXPECT_EQ(of_thread, one);
  EXPECT_EQ(Allowed(), before);
  {
    const OnCpus none(CpuList{});
    EXPECT_EQ(Allowed(), before);
  }
}

}  // namespace
}  // namespace tokamak
