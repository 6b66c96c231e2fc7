// ReplicaRouter: chooses the replica that runs a request.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/prefix_cache.h"

namespace tokamak {

// Hashes of all prefixes of a prompt that are whole blocks, shortest first. Equal only if the root
// key (Arrival::cache_root) is, too.
std::vector<uint64_t> HashPrefixes(std::string_view root_key, std::span<const ContentId> content,
                                   int32_t block_size);

// Remembers which prompts each replica was given, as many blocks of them as its cache holds, those
// used least recently forgotten first. That is a guess at what is cached there: the replicas evict
// by themselves, and a wrong guess only costs time. Not thread-safe.
class ReplicaRouter {
 public:
  struct Options {
    int32_t num_replicas = 1;
    int32_t cache_blocks = 0;  // per replica
  };
  explicit ReplicaRouter(const Options& options);

  // Chooses among the replicas that take requests: the one with the longest cached prefix, if that
  // is at least half of the prompt's blocks and the replica is not overloaded: with more than
  // kMaxExcess open requests, and 1.5 times as many, as the one with the fewest. Otherwise the one
  // with the fewest open requests of at least this priority; then the fewest of all; then the one
  // that was chosen longest ago. -1 if no replica takes requests.
  int32_t Choose(std::span<const uint64_t> prefixes, int32_t priority);
  // The request that Choose assigned to this replica has ended.
  void End(int32_t replica, int32_t priority);

  // Whether Choose may return a replica. All may at first.
  void SetTakesRequests(int32_t replica, bool takes) { replicas_[replica].takes_requests = takes; }
  int32_t num_open(int32_t replica) const { return replicas_[replica].num_open; }

  static constexpr int32_t kMaxExcess = 4;

 private:
  struct Replica {
    bool takes_requests = true;
    int32_t num_open = 0;
    std::map<int32_t, int32_t> open_by_priority;
    uint64_t last_chosen = 0;
    std::list<uint64_t> recent;                                          // hashes, latest use first
    std::unordered_map<uint64_t, std::list<uint64_t>::iterator> places;  // in `recent`

    int32_t OpenFrom(int32_t priority) const;  // requests of at least this priority
  };

  static int32_t NumCached(const Replica& replica, std::span<const uint64_t> prefixes);
  void Remember(Replica& replica, std::span<const uint64_t> prefixes) const;
  bool Overloaded(const Replica& replica) const;

  const size_t cache_blocks_;
  std::vector<Replica> replicas_;
  uint64_t num_chosen_ = 0;
};

}  // namespace tokamak
