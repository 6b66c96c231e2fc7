// EngineCore::Snapshot: copies the engine's state for observers.
#include <fmt/core.h>

#include <algorithm>
#include <deque>

#include "engine/engine_core.h"

namespace tokamak {
namespace {

// Prefix tree nodes visited at most, so that a snapshot takes the engine thread well under 1 ms.
constexpr int32_t kMaxVisits = 8192;

std::string NameOf(const RequestState& request) {
  return request.label.empty() ? fmt::format("{}", request.id) : request.label;
}

int32_t CountBlocks(const SequenceBlocks& blocks) {
  int32_t count = 0;
  for (const std::vector<BlockId>& table : blocks.block_tables) {
    count += static_cast<int32_t>(table.size() - std::count(table.begin(), table.end(), kNoBlock));
  }
  return count;
}

EngineSnapshot::Sequence DescribeSequence(const Sequence& from, TimePoint now) {
  const RequestState& request = *from.request;
  using State = EngineSnapshot::State;
  EngineSnapshot::Sequence to;
  to.request = NameOf(request);
  to.choice = from.choice;
  to.state = from.paused                             ? State::kPaused
             : from.state == SequenceState::kRunning ? State::kRunning
             : from.preempted                        ? State::kPreempted
                                                     : State::kWaiting;
  to.prompt_tokens = from.num_prompt;
  to.computed_tokens = from.slot < 0 ? 0 : from.num_done;
  to.output_tokens = from.num_generated();
  to.cached_tokens = from.slot < 0 ? 0 : from.num_cached;
  to.priority = request.priority;
  to.age_seconds = ToSeconds(now - request.arrived);
  to.blocks = CountBlocks(from.blocks);
  if (from.beams) {
    for (const BeamGroup::Place& place : from.beams->others) to.blocks += CountBlocks(place.blocks);
  }
  return to;
}

char MapCharacter(const BlockPool& pool, const PrefixCache& cache, BlockId block) {
  const int32_t references = pool.references(block);
  if (references == 0) return '.';
  const int32_t readers = references - (cache.holds(block) ? 1 : 0);
  if (readers == 0) return 'c';
  return static_cast<char>('0' + std::min(readers, 9));
}

EngineSnapshot::Blocks DescribeBlocks(const BlockManager& from) {
  EngineSnapshot::Blocks to;
  for (const CacheGroup& group : from.groups()) {
    to.block_tokens = group.block_size;
    ++(group.kind == CacheGroupKind::kFull ? to.full_groups : to.window_groups);
  }
  to.total = from.num_blocks();
  to.free = from.device().num_free();
  to.referenced = from.num_used();
  to.cached = from.num_cached();
  to.host_total = from.host().size();
  to.host_used = from.host().size() - from.host().num_free();
  to.map.resize(static_cast<size_t>(std::min(to.total, EngineSnapshot::kMaxMapBlocks)));
  for (size_t i = 0; i < to.map.size(); ++i) {
    to.map[i] = MapCharacter(from.device(), from.cache(), static_cast<BlockId>(i));
  }
  return to;
}

// Adds the tree, breadth first, with chains of nodes that have equal readers as one node.
void AddTree(const PrefixCache& cache, TimePoint now, EngineSnapshot* to) {
  struct Run {
    NodeId first;
    int32_t parent;
  };
  std::deque<Run> open;
  int32_t visits = 0;
  const auto open_children = [&](NodeId node, int32_t parent) {
    for (const NodeId child : cache.children(node)) {
      if (++visits > kMaxVisits) break;
      open.push_back({child, parent});
    }
  };
  to->num_tree_blocks = cache.num_nodes() - cache.num_roots();
  to->tree.push_back({});
  cache.ForEachRoot([&](NodeId root) { open_children(root, 0); });
  int32_t listed = 0;
  for (; !open.empty() && to->tree.size() < EngineSnapshot::kMaxTreeNodes; open.pop_front()) {
    NodeId node = open.front().first;
    EngineSnapshot::TreeNode run;
    run.id = node + 1;
    run.parent = open.front().parent;
    run.readers = cache.readers(node);
    TimePoint last_used = cache.last_used(node);
    for (run.blocks = 1; cache.children(node).size() == 1; ++run.blocks) {
      const NodeId child = cache.children(node).front();
      if (cache.readers(child) != run.readers || ++visits > kMaxVisits) break;
      node = child;
      last_used = std::max(last_used, cache.last_used(node));
    }
    run.age_seconds = run.readers > 0 ? 0 : ToSeconds(now - last_used);
    listed += run.blocks;
    to->tree.push_back(run);
    open_children(node, run.id);
  }
  to->tree_truncated = listed < to->num_tree_blocks;
}

}  // namespace

EngineCore::EndedRequest EngineCore::Describe(const RequestState& request) {
  EndedRequest to;
  to.request.id = NameOf(request);
  to.request.prompt_tokens = request.usage.prompt_tokens;
  to.request.cached_tokens = request.usage.cached_tokens;
  to.request.output_tokens = request.usage.completion_tokens;
  to.request.preemptions = request.num_preemptions;
  to.number = request.number;
  to.arrived = request.arrived;
  if (request.num_steps > 0) to.admitted = request.first_scheduled;
  to.first_token = request.first_token;
  return to;
}

void EngineCore::AddSequences(TimePoint now, EngineSnapshot* snapshot) const {
  snapshot->num_sequences = scheduler_.num_running() + scheduler_.num_waiting();
  auto& sequences = snapshot->sequences;
  const auto add = [&](const Sequence& sequence) {
    if (sequences.size() == EngineSnapshot::kMaxSequences) return false;
    sequences.push_back(DescribeSequence(sequence, now));
    return true;
  };
  for (const Sequence* sequence : scheduler_.running()) {
    if (!add(*sequence)) break;
  }
  scheduler_.ForEachWaiting(add);
  for (const auto& [id, request] : requests_) {
    if (!request->paused) continue;
    for (const auto& sequence : request->choices) {
      if (sequence->state == SequenceState::kFinished) continue;
      ++snapshot->num_sequences;
      add(*sequence);
    }
  }
}

void EngineCore::AddRequests(TimePoint now, EngineSnapshot* snapshot) const {
  std::vector<EndedRequest> all(ended_.begin(), ended_.end());
  const size_t num_ended = all.size();
  for (auto it = requests_.rbegin(); it != requests_.rend(); ++it) {  // ids mostly ascend
    if (all.size() - num_ended == EngineSnapshot::kMaxRequests) break;
    if (it->second->num_unfinished > 0) all.push_back(Describe(*it->second));
  }
  std::sort(all.begin(), all.end(),
            [](const EndedRequest& a, const EndedRequest& b) { return a.number < b.number; });
  const auto unix_time = [&](TimePoint t) { return snapshot->time - ToSeconds(now - t); };
  const size_t left_out = all.size() - std::min<size_t>(all.size(), EngineSnapshot::kMaxRequests);
  for (size_t i = left_out; i < all.size(); ++i) {
    EngineSnapshot::Request& request = snapshot->requests.emplace_back(std::move(all[i].request));
    request.arrived = unix_time(all[i].arrived);
    if (all[i].admitted) request.admitted = unix_time(*all[i].admitted);
    if (all[i].first_token) request.first_token = unix_time(*all[i].first_token);
    if (request.end) request.ended = unix_time(all[i].ended);
  }
}

EngineSnapshot EngineCore::Snapshot(TimePoint now, double unix_now) const {
  EngineSnapshot snapshot;
  snapshot.time = unix_now;
  snapshot.stats = counters_;
  snapshot.blocks = DescribeBlocks(blocks_);
  AddSequences(now, &snapshot);
  AddTree(blocks_.cache(), now, &snapshot);
  AddRequests(now, &snapshot);
  return snapshot;
}

void EngineCore::SetRestarting(std::string_view reason) {
  counters_.restarting = reason;
  MutexLock lock(stats_mutex_);
  published_.restarting = reason;
}

Status EngineCore::health() const {
  MutexLock lock(stats_mutex_);
  return health_;
}

bool EngineCore::restarting() const {
  MutexLock lock(stats_mutex_);
  return !published_.restarting.empty();
}

void EngineCore::Publish() {
  counters_.running = scheduler_.num_running();
  counters_.waiting = scheduler_.num_waiting();
  counters_.paused = static_cast<int32_t>(num_paused_);
  counters_.used_blocks = blocks_.num_used();
  counters_.cached_blocks = blocks_.num_cached();
  counters_.preemptions = scheduler_.num_preemptions();
  counters_.image_rows_cached = encoder_.num_rows();
  counters_.image_rows_evicted = encoder_.num_evicted_rows();
  const bool busy = HasWork();
  if (!busy) last_progress_ = now_;
  MutexLock lock(stats_mutex_);
  published_ = counters_;
  published_progress_ = last_progress_;
  published_busy_ = busy;
}

EngineStats EngineCore::stats(TimePoint now, std::optional<TimePoint> waiting_since) const {
  MutexLock lock(stats_mutex_);
  EngineStats stats = published_;
  if (published_busy_) {
    stats.seconds_since_progress = ToSeconds(now - published_progress_);
  } else if (waiting_since) {
    stats.seconds_since_progress = ToSeconds(now - std::max(*waiting_since, published_progress_));
  }
  return stats;
}

}  // namespace tokamak
