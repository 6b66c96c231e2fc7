#include "sim/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace tokamak {
namespace {

// Rounds; taking a snapshot costs as much as all other checks.
constexpr int64_t kSnapshotEvery = 8;

// The order within a client, implemented independently.
bool ArrivedBefore(const Sequence* a, const Sequence* b) {
  return std::pair(a->request->number, a->choice) < std::pair(b->request->number, b->choice);
}

}  // namespace

template <typename... Args>
void EngineChecker::Fail(const char* format, Args... args) {
  verdict_->Fail("engine: " + fmt::format(fmt::runtime(format), args...));
}

template <typename Visit>
void EngineChecker::ForEachSequence(Visit visit) const {
  for (const auto& [id, request] : core_->requests_) {
    for (const auto& sequence : request->choices) visit(*sequence);
  }
}

template <typename Visit>
void EngineChecker::ForEachBlocks(Visit visit) const {
  ForEachSequence([&](const Sequence& s) {
    visit(s, s.blocks);
    if (!s.beams) return;
    for (const BeamGroup::Place& place : s.beams->others) visit(s, place.blocks);
  });
}

EngineChecker::EngineChecker(const EngineCore* core, sim::Verdict* verdict, int depth,
                             bool one_client)
    : core_(core), verdict_(verdict), depth_(depth), one_client_(one_client) {}

// A sequence ranks one turn after the previous one of the same client and priority.
void EngineChecker::RankSequences() {
  std::map<std::pair<int32_t, std::string>, std::vector<const Sequence*>> clients;
  ranks_.clear();
  ForEachSequence([&](const Sequence& s) {
    if (s.state == SequenceState::kFinished || s.paused) return;
    clients[{s.request->priority, s.request->client}].push_back(&s);
  });
  for (auto& [client, sequences] : clients) {
    std::sort(sequences.begin(), sequences.end(), ArrivedBefore);
    int64_t rank = sequences[0]->request->queue->turn_start;
    for (const Sequence* s : sequences) {
      ranks_[s] = rank;
      rank += core_->options().quantum;
    }
  }
}

bool EngineChecker::Above(const Sequence& a, const Sequence& b) const {
  const auto key = [this](const Sequence& s) {
    return std::tuple(-int64_t{s.request->priority}, ranks_.at(&s), s.request->number, s.choice);
  };
  return key(a) < key(b);
}

// A draft that cannot be accepted, or that would be the last token, costs a position for nothing.
void EngineChecker::CheckDrafts(const StepInput& step) {
  for (const StepRow& row : step.rows) {
    const auto& running = core_->scheduler_.running_;
    const auto found = std::find_if(running.begin(), running.end(),
                                    [&row](const Sequence* s) { return s->slot == row.slot; });
    if (found == running.end() || !row.masked || row.drafts.empty()) continue;
    const Sequence& s = **found;
    std::set<TokenId> ends(s.request->eos_ids.begin(), s.request->eos_ids.end());
    const std::vector<TokenId>& stop = s.request->sampling.stop_token_ids;
    ends.insert(stop.begin(), stop.end());
    const std::unique_ptr<TokenConstraint> ahead = s.constraint->Clone();
    for (const TokenId draft : row.drafts) {
      if (ends.contains(draft)) Fail("request {} has draft {}, an end", s.request->id, draft);
      if (!ahead->Accept(draft)) Fail("request {} may not draw {}", s.request->id, draft);
      if (ahead->finished()) Fail("request {} would end at draft {}", s.request->id, draft);
    }
  }
}

// Under a budget a row has masks if one of its draws may be the forced one, as far as is known.
void EngineChecker::CheckMasks() {
  for (const ScheduledRow& row : core_->in_flight_.back().rows) {
    const Sequence& s = *row.sequence;
    const std::optional<int32_t> budget = s.request->sampling.thinking_token_budget;
    if (!budget || s.beams) continue;
    const auto last = s.num_generated() + s.pending_tokens - 1 + std::ssize(row.drafts);
    const bool expected = row.sample && s.num_generated() <= *budget && *budget <= last;
    if (row.masked != expected) Fail("request {} has masks: {}", s.request->id, row.masked);
  }
}

void EngineChecker::OnSubmit(const StepInput& step) {
  CheckDrafts(step);
  CheckMasks();
  RankSequences();
  std::vector<const Sequence*> admitted;
  for (const AdmitSequence& admit : step.admit) {
    for (const Sequence* s : core_->scheduler_.running_) {
      if (s->slot == admit.slot) admitted.push_back(s);
    }
  }
  if (admitted.size() != step.admit.size()) Fail("admits a sequence that is not running");
  ForEachSequence([&](const Sequence& waiting) {
    if (waiting.state != SequenceState::kWaiting || waiting.gated) return;
    for (const Sequence* s : admitted) {
      if (Above(waiting, *s)) {
        Fail("request {} was admitted before {}", s->request->id, waiting.request->id);
      }
    }
  });
  const auto& running = core_->scheduler_.running_;
  if (!std::is_sorted(running.begin(), running.end(),
                      [this](const Sequence* a, const Sequence* b) { return Above(*a, *b); })) {
    Fail("running sequences are out of order");
  }
  CheckDraftWaits();
  CheckBeamRows();
  CheckForgotten(step);
}

void EngineChecker::CheckBeamRows() {
  const auto searches = [](const ScheduledRow& row) {
    return row.num_candidates > 0 && row.sequence->beams->searching;
  };
  std::map<const Sequence*, size_t> num_rows;
  const auto& last = core_->in_flight_.back();
  for (const ScheduledRow& row : last.rows) {
    if (row.sequence->beams) ++num_rows[row.sequence];
  }
  for (const auto& [s, count] : num_rows) {
    if (s->beams->forks && s->num_scheduled > s->beams->base) {
      Fail("request {} has a row before it forks", s->request->id);
    }
    if (count != 1 && count != s->beams->beams.size()) {
      Fail("request {} has {} rows for {} beams", s->request->id, count, s->beams->beams.size());
    }
  }
  for (const ScheduledRow& row : last.rows) {
    // More tokens are recomputed ones.
    if (!searches(row) || row.num_tokens > 1 || is_pipeline()) continue;
    for (const auto& step : core_->in_flight_) {
      if (&step == &last) continue;
      for (const ScheduledRow& other : step.rows) {
        if (!searches(other)) continue;
        Fail("request {} goes on while beams of {} are in flight", row.sequence->request->id,
             other.sequence->request->id);
      }
    }
  }
}

void EngineChecker::CheckDraftWaits() {
  const auto has_drafts = [](const ScheduledRow& row) {
    return !row.drafts.empty() || row.num_proposals > 0;
  };
  int32_t drafting = 0;
  for (const auto& step : core_->in_flight_) {
    drafting += std::any_of(step.rows.begin(), step.rows.end(), has_drafts) ? 1 : 0;
  }
  if (drafting > 1 && !is_pipeline()) Fail("{} steps with drafts are in flight", drafting);
  const std::vector<ScheduledRow>& rows = core_->in_flight_.back().rows;
  const bool drafts_ahead =
      !is_pipeline() && drafting > 0 && std::none_of(rows.begin(), rows.end(), has_drafts);
  for (const ScheduledRow& row : rows) {
    const auto num_drafts = static_cast<int32_t>(row.drafts.size());
    if (num_drafts > 0 && num_drafts < core_->options_.drafts.least) {
      Fail("request {} has only {} drafts", row.sequence->request->id, num_drafts);
    }
    if (row.num_proposals > 0 && row.num_proposals < core_->options_.drafts.least) {
      Fail("request {} wants only {} proposals", row.sequence->request->id, row.num_proposals);
    }
    DraftWait& wait = draft_waits_[KeyOf(*row.sequence)];
    const bool waited = std::exchange(wait.steps, 0) > 0;
    if (waited && row.drafts.empty() && !row.admitted) {
      wait.next_start = row.start + row.num_tokens + kTokensBetweenWaits;
    }
  }
  for (const Sequence* s : core_->scheduler_.running_) {
    DraftWait& wait = draft_waits_[KeyOf(*s)];
    if (!s->waits_to_draft) {
      wait.steps = 0;  // got a row, or lacks blocks or tokens for one
      continue;
    }
    if (++wait.steps > 2 * (depth_ - 1)) {
      Fail("request {} has waited {} steps to draft", s->request->id, wait.steps);
    }
    if (s->rows_in_flight == 0 && !drafts_ahead) {
      Fail("request {} waits although nothing that matters to it is in flight", s->request->id);
    }
    if (s->rows_in_flight > 0 && s->length() < wait.next_start) {
      Fail("request {} waits to draft again at {} tokens", s->request->id, s->length());
    }
  }
}

void EngineChecker::AfterStep() {
  CheckSequences();
  CheckReferences();
  CheckTree();
  CheckStats();
  if (++rounds_ % kSnapshotEvery == 0) CheckSnapshot();
  CheckProgress();
  if (one_client_) CheckWaiting();
}

void EngineChecker::AtEnd() {
  const BlockManager& blocks = core_->blocks_;
  if (!core_->requests_.empty()) Fail("{} requests are left", core_->requests_.size());
  if (!core_->in_flight_.empty()) Fail("steps are left in flight");
  if (blocks.num_used() != 0) Fail("{} blocks are lost", blocks.num_used());
  if (core_->queued_.total() != 0) Fail("{} requests are still queued", core_->queued_.total());
  if (core_->scheduler_.free_slots_.size() != static_cast<size_t>(core_->options_.max_seqs)) {
    Fail("slots are lost: {} are free", core_->scheduler_.free_slots_.size());
  }
}

// Sequences.

// The slots and blocks of a sequence with beam search, apart from its first place.
void EngineChecker::CheckPlaces(const Sequence& s) {
  const BeamGroup& group = *s.beams;
  for (const BeamGroup::Place& place : group.others) {
    if ((place.slot >= 0) != (s.slot >= 0)) Fail("request {} lacks a slot", s.request->id);
    if (place.slot >= 0) ++slots_[place.slot];
    if (place.slot < 0 && place.blocks.size() != 0) Fail("blocks without a slot");
  }
  if (group.beams.size() != group.search.beams().size()) Fail("beams without a text");
  if (s.slot < 0 || s.state == SequenceState::kFinished || s.num_scheduled <= group.base) return;
  for (const BeamGroup::Beam& beam : group.beams) {
    const SequenceBlocks& blocks = const_cast<Sequence&>(s).blocks_at(beam.place);
    if (s.num_scheduled <= blocks.size() * core_->blocks_.block_size_) continue;
    Fail("request {} lacks blocks for a beam", s.request->id);
  }
}

void EngineChecker::CheckSequences() {
  const Scheduler& scheduler = core_->scheduler_;
  struct Flying {
    int32_t rows = 0, tokens = 0, drafts = 0, awaited = 0;
  };
  std::unordered_map<const Sequence*, Flying> flying;
  for (const auto& step : core_->in_flight_) {
    for (const ScheduledRow& row : step.rows) {
      auto& [rows, tokens, drafts, awaited] = flying[row.sequence];
      if (awaited > 0) Fail("slot {} has a row behind its proposals", row.sequence->slot);
      ++rows;
      tokens += row.sample ? 1 : 0;
      drafts += static_cast<int32_t>(row.drafts.size());
      awaited = row.num_proposals;
    }
  }
  slots_.assign(core_->options_.max_seqs, 0);
  for (const SequenceSlotId slot : scheduler.free_slots_) ++slots_[slot];
  size_t holding = 0;
  ForEachSequence([&](const Sequence& s) {
    const auto found = flying.find(&s);
    const auto [rows, tokens, drafts, awaited] = found == flying.end() ? Flying() : found->second;
    if (s.rows_in_flight != rows || s.pending_tokens != tokens || s.num_drafts != drafts) {
      Fail("request {} counts {} rows, {} tokens and {} drafts in flight, not {}, {} and {}",
           s.request->id, s.rows_in_flight, s.pending_tokens, s.num_drafts, rows, tokens, drafts);
    }
    if (s.num_awaited != awaited) {
      Fail("request {} awaits {} proposals, not {}", s.request->id, awaited, s.num_awaited);
    }
    if (drafts > 0 && rows != 1) Fail("request {} has a row beside drafts", s.request->id);
    const auto proposals = static_cast<int32_t>(s.proposals.size());
    if (proposals > 0 && (s.slot < 0 || rows > 0)) {
      Fail("request {} keeps proposals that its next row does not verify", s.request->id);
    }
    if (proposals > 0 && s.state != SequenceState::kFinished &&
        s.known() + proposals >= s.max_length) {
      Fail("request {} has proposals beyond its length of {}", s.request->id, s.max_length);
    }
    const bool active = s.state == SequenceState::kRunning || s.state == SequenceState::kPreempting;
    if (s.beams) CheckPlaces(s);
    if (s.slot >= 0) {
      ++slots_[s.slot];
      ++holding;
    } else if (s.blocks.size() != 0 || s.blocks.cursor != kNoNode || rows != 0) {
      Fail("request {} holds blocks without a slot", s.request->id);
    }
    const bool waits = s.state == SequenceState::kWaiting || s.state == SequenceState::kPaused;
    if (waits && s.slot >= 0) Fail("a waiting sequence has a slot");
    if (s.paused && s.state != SequenceState::kFinished && s.slot >= 0 && rows == 0) {
      Fail("request {} is paused and keeps its slot and blocks", s.request->id);
    }
    const bool ended = s.state == SequenceState::kFinished;
    if (!ended &&
        (s.paused != s.request->paused || (s.state == SequenceState::kPaused && !s.paused))) {
      Fail("request {} is paused in part", s.request->id);
    }
    if (active && s.slot < 0) Fail("a running sequence has no slot");
    if (s.state == SequenceState::kFinished && s.slot >= 0 && rows == 0) {
      Fail("request {} has ended and keeps its slot", s.request->id);
    }
    if (active && (s.num_done > s.num_scheduled || s.num_scheduled - drafts > s.length() ||
                   (!s.beams && s.num_scheduled > s.blocks.size() * core_->blocks_.block_size_))) {
      Fail("request {}: done {}, scheduled {}, length {}", s.request->id, s.num_done,
           s.num_scheduled, s.length());
    }
    if (s.known() > s.max_length || s.length() + drafts > s.max_length) {
      Fail("request {} exceeds its length of {}", s.request->id, s.max_length);
    }
  });
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot] != 1) Fail("slot {} has {} owners", slot, int{slots_[slot]});
  }
  if (holding != scheduler.running_.size() + scheduler.retiring_.size()) {
    Fail("{} sequences have slots, {} run", holding, scheduler.running_.size());
  }
  for (const auto& [id, request] : core_->requests_) {
    if (request->num_unfinished == 0 && request->num_holding == 0) Fail("request {} lingers", id);
  }
}

// Blocks.

void EngineChecker::CheckReferences() {
  const BlockManager& blocks = core_->blocks_;
  const PrefixCache& cache = blocks.cache_;
  device_references_.assign(blocks.device_.size(), 0);
  host_references_.assign(blocks.host_.size(), 0);
  ForEachBlocks([&](const Sequence&, const SequenceBlocks& blocks) {
    for (const auto& table : blocks.block_tables) {
      for (const BlockId block : table) {
        if (block != kNoBlock) ++device_references_[block];
      }
    }
  });
  const auto count_pins = [&](const std::vector<BlockManager::Pin>& pins) {
    for (const BlockManager::Pin& pin : pins) {
      ++(pin.tier == Tier::kDevice ? device_references_ : host_references_)[pin.block];
    }
  };
  count_pins(blocks.work_.pins);
  for (const auto& step : core_->in_flight_) count_pins(step.pins);
  int32_t unreferenced = 0;
  for (const PrefixCache::Entry& entry : cache.entries_) {
    if (entry.device != kNoBlock) {
      unreferenced += device_references_[entry.device] == 0;
      ++device_references_[entry.device];
    }
    if (entry.host != kNoBlock) ++host_references_[entry.host];
  }
  const auto compare = [&](const char* tier, const std::vector<int32_t>& counted,
                           const BlockPool& pool) {
    int32_t free = 0;
    for (BlockId block = 0; block < pool.size(); ++block) {
      free += counted[block] == 0;
      if (counted[block] != pool.references(block)) {
        Fail("{} block {} has {} owners but counts {}", tier, block, counted[block],
             pool.references(block));
      }
    }
    if (free != pool.num_free()) Fail("{} {} blocks are free, not {}", pool.num_free(), tier, free);
  };
  compare("device", device_references_, blocks.device_);
  compare("host", host_references_, blocks.host_);
  if (unreferenced != cache.num_unreferenced_) {
    Fail("{} blocks are unreferenced, not {}", unreferenced, cache.num_unreferenced_);
  }
}

void EngineChecker::CheckTree() {
  const PrefixCache& cache = core_->blocks_.cache_;
  cursors_.assign(cache.nodes_.size(), 0);
  ForEachBlocks([&](const Sequence& s, const SequenceBlocks& blocks) {
    if (blocks.cursor == kNoNode) return;
    ++cursors_[blocks.cursor];
    if (cache.depth(blocks.cursor) != blocks.num_committed) Fail("a cursor is misplaced");
    if (blocks.num_committed * core_->blocks_.block_size_ > std::max(s.num_done, 0)) {
      Fail("request {} shares blocks that are still being written", s.request->id);
    }
  });
  for (NodeId node = 0; node < static_cast<NodeId>(cache.nodes_.size()); ++node) {
    const PrefixCache::Node& n = cache.nodes_[node];
    if (!n.alive) continue;
    if (n.cursors != cursors_[node]) Fail("node {} has {} cursors", node, n.cursors);
    int32_t entries = 0;
    for (int32_t g = 0; g < cache.num_groups(); ++g) {
      entries += cache.At(node, g).empty() ? 0 : 1;
      CheckEntry(node, g);
    }
    const bool broken = cache.depth(node) > 0 && !cache.HasAllFullGroups(node);
    if (broken && entries > 0) Fail("node {} keeps blocks that no match can reach", node);
    if (entries != n.num_entries) Fail("node {} counts its entries wrong", node);
    if (entries == 0 && n.children.empty() && n.cursors == 0) Fail("node {} is of no use", node);
    for (size_t i = 0; i < n.children.size(); ++i) {
      if (cache.nodes_[n.children[i]].parent != node) Fail("node {} is misplaced", n.children[i]);
      if (i == 0) continue;
      const auto a = cache.Content(n.children[i - 1]);
      const auto b = cache.Content(n.children[i]);
      if (!std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end())) {
        Fail("children of node {} are out of order", node);
      }
    }
  }
}

void EngineChecker::CheckEntry(NodeId node, int32_t group) {
  const PrefixCache& cache = core_->blocks_.cache_;
  const PrefixCache::Node& n = cache.nodes_[node];
  const PrefixCache::Entry& entry = cache.At(node, group);
  const int32_t id = cache.EntryId(node, group);
  int32_t device_children = 0;
  int32_t any_children = 0;
  for (const NodeId child : n.children) {
    device_children += cache.At(child, group).device != kNoBlock;
    any_children += !cache.At(child, group).empty();
  }
  if (device_children != entry.device_children || any_children != entry.any_children) {
    Fail("node {} group {} counts its children wrong", node, group);
  }
  if (entry.device != kNoBlock && entry.host != kNoBlock) Fail("node {} has two copies", node);
  if (entry.device != kNoBlock && cache.device_owner_[entry.device] != id) {
    Fail("block {} is not known to be in node {}", entry.device, node);
  }
  const bool full = cache.full(group);
  if (full && n.parent != kNoNode && cache.depth(n.parent) > 0) {
    const PrefixCache::Entry& above = cache.At(n.parent, group);
    if (!entry.empty() && above.empty()) Fail("node {} is cut off in group {}", node, group);
    if (entry.device != kNoBlock && above.device == kNoBlock) {
      Fail("node {} is on the device below a node that is not", node);
    }
  }
  const bool evictable = entry.device != kNoBlock && device_references_[entry.device] == 1 &&
                         (!full || device_children == 0);
  const bool droppable =
      entry.host != kNoBlock && host_references_[entry.host] == 1 && (!full || any_children == 0);
  if (evictable != cache.device_lru_.Contains(id)) Fail("node {} evictable: {}", node, evictable);
  if (droppable != cache.host_lru_.Contains(id)) Fail("node {} droppable: {}", node, droppable);
}

void EngineChecker::CheckStats() {
  const BlockManager& blocks = core_->blocks_;
  const EngineStats stats = core_->stats(TimePoint{});
  const int32_t free = blocks.device_.num_free();
  if (stats.used_blocks + stats.cached_blocks + free != stats.total_blocks) {
    Fail("{} used + {} cached + {} free blocks are not {}", stats.used_blocks, stats.cached_blocks,
         free, stats.total_blocks);
  }
  int32_t queued = static_cast<int32_t>(core_->arrivals_.size());
  for (const auto& [id, request] : core_->requests_) queued += request->scheduled ? 0 : 1;
  if (queued != core_->queued_.total()) {
    Fail("{} requests are queued, not {}", core_->queued_.total(), queued);
  }
}

// Compares the snapshot with the counts of CheckReferences and with the statistics.
void EngineChecker::CheckSnapshot() {
  const EngineSnapshot snapshot = core_->Snapshot(core_->now_, 0);
  const EngineSnapshot::Blocks& blocks = snapshot.blocks;
  const EngineStats stats = core_->stats(TimePoint{});
  const PrefixCache& cache = core_->blocks_.cache_;
  int32_t free = 0, cached = 0, referenced = 0;
  for (size_t i = 0; i < blocks.map.size(); ++i) {
    const char c = blocks.map[i];
    const int32_t readers = device_references_[i] - (cache.device_owner_[i] >= 0 ? 1 : 0);
    ++(c == '.' ? free : c == 'c' ? cached : referenced);
    const bool right = c == '.'   ? device_references_[i] == 0
                       : c == 'c' ? device_references_[i] == 1 && readers == 0
                                  : c - '0' == std::min(readers, 9) && readers > 0;
    if (!right) Fail("block {} is shown as '{}' with {} owners", i, c, device_references_[i]);
  }
  if (free != blocks.free || cached != blocks.cached || referenced != blocks.referenced ||
      cached != stats.cached_blocks || referenced != stats.used_blocks ||
      free + cached + referenced != stats.total_blocks) {
    Fail("the map shows {} free, {} cached, {} referenced blocks", free, cached, referenced);
  }
  int32_t nodes = 0;
  for (const EngineSnapshot::TreeNode& node : snapshot.tree) nodes += node.blocks;
  if (nodes != snapshot.num_tree_blocks && !snapshot.tree_truncated) {
    Fail("the tree shows {} blocks of {}", nodes, snapshot.num_tree_blocks);
  }
  int32_t paused = 0;
  for (const auto& [id, request] : core_->requests_) {
    for (const auto& choice : request->choices) {
      paused += choice->paused && choice->state != SequenceState::kFinished ? 1 : 0;
    }
  }
  if (snapshot.num_sequences != stats.running + stats.waiting + paused) {
    Fail("{} sequences are shown, {} run, {} wait and {} are paused", snapshot.num_sequences,
         stats.running, stats.waiting, paused);
  }
  std::set<std::pair<std::string, int32_t>> shown;
  for (const EngineSnapshot::Sequence& s : snapshot.sequences) {
    if (!shown.emplace(s.request, s.choice).second) Fail("{} is shown twice", s.request);
  }
  int64_t ended = 0;
  for (const int64_t n : stats.ended_requests) ended += n;
  if (stats.end_to_end.count() != ended) Fail("{} requests have ended", ended);
  if (stats.inter_token.count() > stats.generated_tokens) Fail("more gaps than tokens");
}

// Waiting.

int64_t EngineChecker::TenureBound(const Sequence& s) const {
  // As the best ranked sequence it computes every position at most once. Each may take a few rounds
  // if blocks must first be taken from others.
  const int64_t bound = (int64_t{s.max_length} + 4) * (depth_ + 2) + 20;
  // Beams wait for others' beams in flight, and until what they go on with is known.
  return s.beams ? 2 * bound : bound;
}

void EngineChecker::CheckProgress() {
  RankSequences();
  const Sequence* best = nullptr;
  const Sequence* last = nullptr;  // best in the last round
  for (const auto& [s, rank] : ranks_) {
    if (best == nullptr || Above(*s, *best)) best = s;
    if (KeyOf(*s) == best_) last = s;
  }
  const bool advanced = last == nullptr || last->num_charged != best_charged_;
  const bool arrivals =
      std::exchange(num_arrivals_, core_->num_arrivals_) != core_->num_arrivals_ ||
      std::exchange(paused_, false);
  if (best == nullptr) return;
  // Ranks change at the start of the next step.
  if (best != last && last != nullptr && !best_advanced_ && !arrivals) {
    Fail("request {} is the best ranked instead of {}, which has computed nothing",
         best->request->id, last->request->id);
  }
  best_advanced_ = best->request->queue->advanced;
  if (best != last || advanced) tenure_ = 0;
  best_ = KeyOf(*best);
  best_charged_ = best->num_charged;
  if (++tenure_ > TenureBound(*best)) {
    Fail("request {} choice {}, best ranked for {} rounds, does not advance", best->request->id,
         best->choice, tenure_);
  }
}

void EngineChecker::CheckWaiting() {
  ForEachSequence([&](const Sequence& s) {
    if (s.request->number >= next_number_ || !waits_.contains(KeyOf(s))) {
      Wait& wait = waits_[KeyOf(s)];
      wait.bound = TenureBound(s);
      ForEachSequence([&](const Sequence& other) {
        if (&other == &s || other.state == SequenceState::kFinished) return;
        // Counts each pair once, when its second sequence is first seen.
        const auto seen = waits_.find(KeyOf(other));
        if (seen == waits_.end()) return;
        const auto rank = [](const Sequence& of) {
          return std::pair(-int64_t{of.request->priority}, KeyOf(of));
        };
        if (rank(other) < rank(s)) waits_[KeyOf(s)].bound += TenureBound(other);
        if (rank(s) < rank(other)) seen->second.bound += TenureBound(s);
      });
      next_number_ = std::max(next_number_, s.request->number + 1);
    }
    if (s.state == SequenceState::kFinished || s.paused) return;
    Wait& wait = waits_[KeyOf(s)];
    if (++wait.rounds > wait.bound) {
      Fail("request {} choice {} has waited {} rounds", s.request->id, s.choice, wait.rounds);
    }
  });
}

void EngineChecker::OnFailure() {
  for (auto& [key, wait] : waits_) wait.rounds = 0;
  tenure_ = 0;
}

// Now others go first, and positions given back are recomputed.
void EngineChecker::OnPause() {
  OnFailure();
  paused_ = true;
}

}  // namespace tokamak
