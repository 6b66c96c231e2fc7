#include "base/numa.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>
#include <utility>

namespace tokamak {
namespace {

// Reads "0-3,8,10-11". Stops at what it does not understand.
CpuList ParseCpuList(std::string_view text) {
  CpuList cpus;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  const auto number = [&](int& value) {
    const auto [next, error] = std::from_chars(at, end, value);
    at = next;
    return error == std::errc() && value >= 0 && value < CPU_SETSIZE;
  };
  for (int first = 0; number(first);) {
    int last = first;
    if (at != end && *at == '-' && (++at, !number(last))) break;
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (at == end || *at++ != ',') break;
  }
  return cpus;
}

}  // namespace

std::vector<CpuList> ReadNumaNodes(const std::string& folder) {
  std::vector<CpuList> nodes;
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return nodes;
  std::string online;
  std::getline(std::ifstream(folder + "/online"), online);
  for (const int node : ParseCpuList(online)) {
    std::string list;
    std::getline(std::ifstream(folder + "/node" + std::to_string(node) + "/cpulist"), list);
    CpuList cpus = ParseCpuList(list);
    std::erase_if(cpus, [&](int cpu) { return !CPU_ISSET(cpu, &allowed); });
    if (!cpus.empty()) nodes.push_back(std::move(cpus));
  }
  return nodes;
}

CpuList CpusOfRank(const std::vector<CpuList>& nodes, int32_t rank, int32_t num_ranks) {
  CpuList cpus;
  const auto num_nodes = static_cast<int64_t>(nodes.size());
  if (num_nodes < 2 || num_ranks < 2) return cpus;
  const int64_t begin = rank * num_nodes / num_ranks;
  const int64_t end = std::max(begin + 1, (rank + 1) * num_nodes / num_ranks);
  for (int64_t node = begin; node < end; ++node) {
    const CpuList& more = nodes[static_cast<size_t>(node)];
    cpus.insert(cpus.end(), more.begin(), more.end());
  }
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

OnCpus::OnCpus(const CpuList& cpus) {
  if (cpus.empty() || ::sched_getaffinity(0, sizeof(before_), &before_) != 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  changed_ = ::sched_setaffinity(0, sizeof(set), &set) == 0;
}

OnCpus::~OnCpus() {
  if (changed_) ::sched_setaffinity(0, sizeof(before_), &before_);
}

}  // namespace tokamak
