#include "local/merge_replicas.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tokamak {
namespace {

// Adds element by element; the lengths may differ.
template <typename T>
void Add(const std::vector<T>& other, std::vector<T>& sum) {
  sum.resize(std::max(sum.size(), other.size()));
  for (size_t i = 0; i < other.size(); ++i) {
    if constexpr (requires { other[i].size(); }) {
      Add(other[i], sum[i]);
    } else {
      sum[i] += other[i];
    }
  }
}

void Add(const LatencyHistogram& other, LatencyHistogram& sum) {
  for (size_t i = 0; i < other.counts.size(); ++i) sum.counts[i] += other.counts[i];
  sum.sum += other.sum;
}

// Names all members, so that one that is missing here does not compile.
void Add(const EngineStats& other, EngineStats& sum) {
  const auto& [running, waiting, paused, total_blocks, used_blocks, cached_blocks, steps,
               step_tokens, prefill_tokens, kv_bytes_read, prompt_tokens, generated_tokens, drafts,
               accepted_drafts, drafts_at, accepted_drafts_at, saved_seconds, queried_prompt_tokens,
               cached_prompt_tokens, preemptions, images_encoded, image_rows_evicted,
               image_rows_cached, expert_positions, decode_steps, decode_experts, ended_requests,
               queue_time, time_to_first_token, end_to_end, prefill_time, decode_time, inter_token,
               seconds_since_progress, restarting, ranks] = other;
  sum.running += running;
  sum.waiting += waiting;
  sum.paused += paused;
  sum.total_blocks += total_blocks;
  sum.used_blocks += used_blocks;
  sum.cached_blocks += cached_blocks;
  sum.steps += steps;
  sum.step_tokens += step_tokens;
  sum.prefill_tokens += prefill_tokens;
  sum.kv_bytes_read += kv_bytes_read;
  sum.prompt_tokens += prompt_tokens;
  sum.generated_tokens += generated_tokens;
  sum.drafts += drafts;
  sum.accepted_drafts += accepted_drafts;
  Add(drafts_at, sum.drafts_at);
  Add(accepted_drafts_at, sum.accepted_drafts_at);
  sum.saved_seconds += saved_seconds;
  sum.queried_prompt_tokens += queried_prompt_tokens;
  sum.cached_prompt_tokens += cached_prompt_tokens;
  sum.preemptions += preemptions;
  sum.images_encoded += images_encoded;
  sum.image_rows_evicted += image_rows_evicted;
  sum.image_rows_cached += image_rows_cached;
  Add(expert_positions, sum.expert_positions);
  sum.decode_steps += decode_steps;
  Add(decode_experts, sum.decode_experts);
  for (size_t i = 0; i < ended_requests.size(); ++i) sum.ended_requests[i] += ended_requests[i];
  Add(queue_time, sum.queue_time);
  Add(time_to_first_token, sum.time_to_first_token);
  Add(end_to_end, sum.end_to_end);
  Add(prefill_time, sum.prefill_time);
  Add(decode_time, sum.decode_time);
  Add(inter_token, sum.inter_token);
  sum.seconds_since_progress = std::max(sum.seconds_since_progress, seconds_since_progress);
  if (restarting.empty()) sum.restarting.clear();  // this one takes requests
  const int32_t replica = sum.ranks.empty() ? 0 : sum.ranks.back().replica + 1;
  for (RankStats rank : ranks) {
    rank.replica = replica;
    sum.ranks.push_back(rank);
  }
}

// block_tokens and the numbers of groups are the same in all replicas.
void Add(const EngineSnapshot::Blocks& other, EngineSnapshot::Blocks& sum) {
  sum.total += other.total;
  sum.free += other.free;
  sum.referenced += other.referenced;
  sum.cached += other.cached;
  sum.host_total += other.host_total;
  sum.host_used += other.host_used;
  const size_t room = EngineSnapshot::kMaxMapBlocks - sum.map.size();
  sum.map += other.map.substr(0, room);
}

}  // namespace

EngineStats Sum(std::vector<EngineStats> replicas) {
  EngineStats sum = std::move(replicas.front());
  for (size_t i = 1; i < replicas.size(); ++i) Add(replicas[i], sum);
  return sum;
}

EngineSnapshot Merge(std::span<const std::shared_ptr<const EngineSnapshot>> replicas) {
  EngineSnapshot merged = *replicas.front();
  const auto count = static_cast<int32_t>(replicas.size());
  for (EngineSnapshot::TreeNode& node : merged.tree) {
    node.id *= count;
    if (node.parent > 0) node.parent *= count;
  }
  for (int32_t i = 1; i < count; ++i) {
    const EngineSnapshot& other = *replicas[static_cast<size_t>(i)];
    merged.time = std::max(merged.time, other.time);
    Add(other.stats, merged.stats);
    merged.sequences.insert(merged.sequences.end(), other.sequences.begin(), other.sequences.end());
    merged.num_sequences += other.num_sequences;
    Add(other.blocks, merged.blocks);
    for (EngineSnapshot::TreeNode node : other.tree) {
      if (node.id == 0) continue;  // the root, which all share
      node.id = node.id * count + i;
      if (node.parent > 0) node.parent = node.parent * count + i;
      merged.tree.push_back(node);
    }
    merged.num_tree_blocks += other.num_tree_blocks;
    merged.tree_truncated = merged.tree_truncated || other.tree_truncated;
    merged.requests.insert(merged.requests.end(), other.requests.begin(), other.requests.end());
    if (!merged.read_gb_s) merged.read_gb_s = other.read_gb_s;
  }
  std::ranges::stable_sort(merged.sequences, {}, &EngineSnapshot::Sequence::state);
  if (merged.sequences.size() > EngineSnapshot::kMaxSequences) {
    merged.sequences.resize(EngineSnapshot::kMaxSequences);
  }
  // Parents come before their children, so cutting off the end leaves none without its parent.
  if (merged.tree.size() > EngineSnapshot::kMaxTreeNodes) {
    merged.tree.resize(EngineSnapshot::kMaxTreeNodes);
    merged.tree_truncated = true;
  }
  std::ranges::stable_sort(merged.requests, {}, &EngineSnapshot::Request::arrived);
  const size_t surplus = merged.requests.size() -
                         std::min<size_t>(merged.requests.size(), EngineSnapshot::kMaxRequests);
  merged.requests.erase(merged.requests.begin(),
                        merged.requests.begin() + static_cast<std::ptrdiff_t>(surplus));
  return merged;
}

}  // namespace tokamak
