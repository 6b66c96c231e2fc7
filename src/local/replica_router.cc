#include "local/replica_router.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <type_traits>

#include "base/hash.h"

namespace tokamak {

std::vector<uint64_t> HashPrefixes(std::string_view root_key, std::span<const ContentId> content,
                                   int32_t block_size) {
  std::vector<uint64_t> hashes;
  const auto size = static_cast<size_t>(block_size);
  uint64_t hash = Hash64(root_key.data(), root_key.size());
  for (size_t end = size; end <= content.size(); end += size) {
    const std::span<const ContentId> block = content.subspan(end - size, size);
    hash = Hash64(block.data(), block.size_bytes(), hash);
    hashes.push_back(hash);
  }
  return hashes;
}

ReplicaRouter::ReplicaRouter(const Options& options)
    : cache_blocks_(static_cast<size_t>(options.cache_blocks)),
      replicas_(static_cast<size_t>(options.num_replicas)) {}

int32_t ReplicaRouter::Replica::OpenFrom(int32_t priority) const {
  int32_t open = 0;
  for (auto it = open_by_priority.lower_bound(priority); it != open_by_priority.end(); ++it) {
    open += it->second;
  }
  return open;
}

// A prefix is cached only with all shorter ones.
int32_t ReplicaRouter::NumCached(const Replica& replica, std::span<const uint64_t> prefixes) {
  const auto missing =
      std::ranges::find_if(prefixes, [&](uint64_t hash) { return !replica.places.contains(hash); });
  return static_cast<int32_t>(missing - prefixes.begin());
}

// The shortest prefix last: it is needed by all longer ones, so it must be forgotten after them.
void ReplicaRouter::Remember(Replica& replica, std::span<const uint64_t> prefixes) const {
  prefixes = prefixes.first(std::min(prefixes.size(), cache_blocks_));
  for (size_t i = prefixes.size(); i-- > 0;) {
    const auto known = replica.places.find(prefixes[i]);
    if (known != replica.places.end()) {
      replica.recent.splice(replica.recent.begin(), replica.recent, known->second);
      continue;
    }
    replica.recent.push_front(prefixes[i]);
    replica.places.emplace(prefixes[i], replica.recent.begin());
  }
  while (replica.recent.size() > cache_blocks_) {
    replica.places.erase(replica.recent.back());
    replica.recent.pop_back();
  }
}

bool ReplicaRouter::Overloaded(const Replica& replica) const {
  int32_t fewest = replica.num_open;
  for (const Replica& other : replicas_) {
    if (other.takes_requests) fewest = std::min(fewest, other.num_open);
  }
  return replica.num_open > fewest + kMaxExcess && 2 * replica.num_open > 3 * fewest;
}

int32_t ReplicaRouter::Choose(std::span<const uint64_t> prefixes, int32_t priority) {
  // Smaller is better.
  const auto cost = [&](const Replica& replica) {
    int32_t cached = NumCached(replica, prefixes);
    if (2 * static_cast<size_t>(cached) < prefixes.size() || Overloaded(replica)) cached = 0;
    return std::tuple(-cached, replica.OpenFrom(priority), replica.num_open, replica.last_chosen);
  };
  Replica* best = nullptr;
  std::optional<std::invoke_result_t<decltype(cost), const Replica&>> least;
  for (Replica& replica : replicas_) {
    if (!replica.takes_requests) continue;
    if (const auto own = cost(replica); !least || own < *least) {
      least = own;
      best = &replica;
    }
  }
  if (best == nullptr) return -1;
  best->last_chosen = ++num_chosen_;
  ++best->num_open;
  ++best->open_by_priority[priority];
  Remember(*best, prefixes);
  return static_cast<int32_t>(best - replicas_.data());
}

void ReplicaRouter::End(int32_t index, int32_t priority) {
  Replica& replica = replicas_[static_cast<size_t>(index)];
  --replica.num_open;
  const auto open = replica.open_by_priority.find(priority);
  if (--open->second == 0) replica.open_by_priority.erase(open);
}

}  // namespace tokamak
