// EngineChecker: recounts everything the engine believes, after every step.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/engine_core.h"
#include "sim/fake_executor.h"

namespace tokamak {

// A friend of the engine's classes. Reports to the verdict.
//
// Waiting bound. Call a sequence's tenure the number of rounds in which it is the best ranked one
// that has not ended. Tenure is bounded by a function of its own length (TenureBound), for in any
// few rounds the best ranked sequence computes at least one position and never loses one. A
// sequence therefore ends within the sum of the bounds of those above it and its own. Both are
// checked: each tenure, and each total.
class EngineChecker {
 public:
  EngineChecker(const EngineCore* core, sim::Verdict* verdict, int depth);

  // When a step is submitted: admissions kept the order.
  void OnSubmit(const StepInput& step);
  // When no step is being built and nothing is being retired.
  void AfterStep();
  void OnAccepted(RequestId id);
  // After an executor failure all work starts again.
  void OnFailure();
  // All has ended: only the prefix cache may hold blocks.
  void AtEnd();

  int64_t preemptions() const { return core_->scheduler_.num_preemptions(); }
  int64_t cached_tokens() const { return core_->counters_.cached_prompt_tokens; }

 private:
  struct Wait {
    int64_t rounds = 0;
    int64_t bound = 0;
    int64_t tenure = 0;
    int64_t tenure_bound = 0;
  };
  using Key = uint64_t;
  static Key KeyOf(const Sequence& s) { return s.request->id * 256 + s.choice; }

  template <typename... Args>
  void Fail(const char* format, Args... args);
  template <typename Visit>
  void ForEachSequence(Visit visit) const;

  void CheckSequences();
  void CheckReferences();
  void CheckTree();
  void CheckEntry(NodeId node, int32_t group);
  void CheckStats();
  void CheckSnapshot();
  void CheckWaiting();
  int64_t TenureBound(const Sequence& s) const;

  const EngineCore* const core_;
  sim::Verdict* const verdict_;
  const int depth_;
  std::unordered_map<Key, Wait> waits_;
  int64_t rounds_ = 0;
  uint64_t next_number_ = 0;  // of the first request not yet in waits_
  // Scratch.
  std::vector<int32_t> device_references_;
  std::vector<int32_t> host_references_;
  std::vector<int32_t> cursors_;
  std::vector<char> slots_;
};

}  // namespace tokamak
