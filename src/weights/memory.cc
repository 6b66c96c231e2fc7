#include "weights/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "base/error.h"

namespace tokamak {
namespace {

// The number after `key` in lines of "key value ...".
std::optional<uint64_t> ReadKeyed(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    uint64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

// The file's only number; absent for "max" or a missing file.
std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

struct CgroupFiles {
  const char* limit;
  const char* usage;
  const char* inactive;  // key in memory.stat: file cache not in use
};
constexpr CgroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                   "total_inactive_file"};
constexpr CgroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file"};

// Lowers the budget to what the cgroup at `path` and its parents leave.
void ApplyCgroup(const std::string& mount, std::string path, const CgroupFiles& files,
                 MemoryBudget* budget) {
  while (true) {
    const std::string folder = mount + path + "/";
    const std::optional<uint64_t> limit = ReadNumber(folder + files.limit);
    const std::optional<uint64_t> usage = ReadNumber(folder + files.usage);
    if (limit && usage) {
      const uint64_t cached = ReadKeyed(folder + "memory.stat", files.inactive).value_or(0);
      const uint64_t used = *usage - std::min(cached, *usage);
      const uint64_t left = *limit - std::min(used, *limit);
      if (left < budget->available_bytes) {
        budget->available_bytes = left;
        budget->limited_by = "the memory limit of cgroup " + (path.empty() ? "/" : path);
      }
    }
    if (path.empty()) return;
    path.resize(path.rfind('/'));
  }
}

// Lines of /proc/self/cgroup: "0::/path" for version 2, "4:memory:/path" for version 1.
void ApplyCgroups(const std::string& root, MemoryBudget* budget) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string path = line.substr(second + 1);
    if (path.empty() || path.front() != '/') continue;
    if (path == "/") path.clear();
    // A cgroup outside a container's view appears as /../x: only the mount's root applies.
    if (path.starts_with("/..")) path.clear();
    if (controllers == ",,") {
      ApplyCgroup(root + "/sys/fs/cgroup", path, kVersion2, budget);
    } else if (controllers.find(",memory,") != std::string::npos) {
      ApplyCgroup(root + "/sys/fs/cgroup/memory", path, kVersion1, budget);
    }
  }
}

}  // namespace

Result<MemoryBudget> AvailableMemory(const std::string& root) {
  const std::optional<uint64_t> kib = ReadKeyed(root + "/proc/meminfo", "MemAvailable:");
  if (!kib || *kib > std::numeric_limits<uint64_t>::max() / 1024) {
    return Unavailable("{}/proc/meminfo does not contain the available memory (MemAvailable)",
                       root);
  }
  MemoryBudget budget = {*kib * 1024, "the machine"};
  ApplyCgroups(root, &budget);
  return budget;
}

Status CheckFitsInMemory(const std::string& what, uint64_t bytes, const MemoryBudget& budget) {
  if (bytes <= budget.available_bytes) return Status();
  constexpr double kMiB = 1 << 20;
  return ResourceExhausted(
      "{} need {:.0f} MiB of memory, but {} has only {:.0f} MiB available. Free some, or use a "
      "smaller or more strongly quantized model.",
      what, static_cast<double>(bytes) / kMiB, budget.limited_by,
      static_cast<double>(budget.available_bytes) / kMiB);
}

Status CheckFitsInMemory(const std::string& what, uint64_t bytes) {
  const Result<MemoryBudget> budget = AvailableMemory();
  return budget.ok() ? CheckFitsInMemory(what, bytes, *budget) : Status();
}

}  // namespace tokamak
