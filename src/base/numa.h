// NUMA nodes: CPUs that share a memory, which they read faster than the memory of other nodes.
#pragma once

#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tokamak {

using CpuList = std::vector<int>;  // ascending numbers

// The CPUs of each node that this process may use; nodes without any are left out. Empty if the
// machine does not say. `folder`: where Linux describes the nodes.
std::vector<CpuList> ReadNumaNodes(const std::string& folder = "/sys/devices/system/node");

// The CPUs of the nodes that a rank has to itself, or of the one that it shares with its
// neighbours, if there are more ranks than nodes. Empty if there is only one node.
CpuList CpusOfRank(const std::vector<CpuList>& nodes, int32_t rank, int32_t num_ranks);

// Keeps the calling thread on these CPUs while the object lives. Threads and processes that it
// starts meanwhile stay there for as long as they live. Linux places memory on the node of the
// thread that writes to it first. Does nothing if there are none, or if the system refuses.
class OnCpus {
 public:
  explicit OnCpus(const CpuList& cpus);
  ~OnCpus();
  OnCpus(const OnCpus&) = delete;
  OnCpus& operator=(const OnCpus&) = delete;

 private:
  cpu_set_t before_;
  bool changed_ = false;
};

}  // namespace tokamak
