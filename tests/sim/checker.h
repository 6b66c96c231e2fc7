// EngineChecker: verifies all of the engine's state after every step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/engine_core.h"
#include "sim/fake_executor.h"

namespace tokamak {

// A friend of the engine's classes. Reports failures to the verdict.
//
// Progress: the best ranked sequence can take what it needs from all others. So it computes a new
// position within a number of rounds that depends on its own length (TenureBound). Until then it
// stays the best, unless a request arrives.
//
// Drafts: with several steps in flight, only one of them has drafts or wants proposals. A sequence
// waits to draft only while a row of it or drafts of others are in flight, at most 2 (depth - 1)
// steps, and not again soon if it had no drafts then. A row that wants proposals is its sequence's
// last until they are known.
//
// Beam search: a sequence has the rows of all its beams in a step or none, and no step that all
// take part in follows another one in flight.
//
// In a pipeline several steps in flight may have drafts or searches.
//
// Waiting bound: with one client, the best ranked sequence stays the best until it ends. So a
// sequence ends within the sum of its own bound and of those above it; this sum is checked.
class EngineChecker {
 public:
  EngineChecker(const EngineCore* core, sim::Verdict* verdict, int depth, bool one_client);

  // Call it on each submitted step: checks the order of admissions.
  void OnSubmit(const StepInput& step);
  // Call it when no step is being built or retired.
  void AfterStep();
  void OnAccepted(RequestId id);
  // Compares the encoder cache with the executor's: the images that it holds, with their rows.
  void CheckImages(const std::map<ImageId, int32_t>& held);
  // Call it after an executor failure: all work starts again.
  void OnFailure();
  // Call it when a request was paused or resumed.
  void OnPause();
  // Call it when all has ended: only the prefix cache may hold blocks.
  void AtEnd();

  int64_t preemptions() const { return core_->scheduler_.num_preemptions(); }
  int64_t cached_tokens() const { return core_->counters_.cached_prompt_tokens; }

 private:
  struct Wait {
    int64_t rounds = 0;
    int64_t bound = 0;
  };
  struct DraftWait {
    int32_t steps = 0;       // without a row of it, until now
    int32_t next_start = 0;  // length before which it may not wait for its own rows
  };
  using Key = uint64_t;
  static Key KeyOf(const Sequence& s) { return s.request->id * 256 + s.choice; }

  template <typename... Args>
  void Fail(const char* format, Args... args);
  template <typename Visit>
  void ForEachSequence(Visit visit) const;
  // Calls visit(sequence, blocks) for each place of each sequence.
  template <typename Visit>
  void ForEachBlocks(Visit visit) const;

  void CheckDrafts(const StepInput& step);
  void CheckMasks();
  void CheckDraftWaits();
  void CheckForgotten(const StepInput& step);
  void CheckBeamRows();
  void CheckSequences();
  void CheckPlaces(const Sequence& s);
  void CheckReferences();
  void CheckTree();
  void CheckEntry(NodeId node, int32_t group);
  void CheckStats();
  void CheckSnapshot();
  void CheckProgress();
  void RankSequences();
  bool Above(const Sequence& a, const Sequence& b) const;
  void CheckWaiting();
  int64_t TenureBound(const Sequence& s) const;
  bool is_pipeline() const { return core_->limits_.stages > 1; }

  const EngineCore* const core_;
  sim::Verdict* const verdict_;
  const int depth_;
  const bool one_client_;
  std::unordered_map<const Sequence*, int64_t> ranks_;  // see FairShare
  Key best_ = 0;                // the best ranked sequence in the last round
  int64_t tenure_ = 0;          // rounds since it became the best or computed a new position
  int32_t best_charged_ = 0;    // positions charged for it
  bool best_advanced_ = false;  // a position was charged for it in the step before the next ranking
  uint64_t num_arrivals_ = 0;
  bool paused_ = false;  // a request was paused or resumed since the last round
  std::unordered_map<Key, Wait> waits_;
  std::unordered_map<Key, DraftWait> draft_waits_;
  int64_t rounds_ = 0;
  uint64_t next_number_ = 0;  // the first request not yet in waits_
  // Scratch.
  std::vector<int32_t> device_references_;
  std::vector<int32_t> host_references_;
  std::vector<int32_t> cursors_;
  std::vector<char> slots_;
};

}  // namespace tokamak
