// FakeExecutor: runs steps on a KV cache that remembers what was written to it, and checks that
// every row finds exactly its own prefix there.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/testing/manual_clock.h"
#include "executor/executor.h"
#include "sim/model.h"

namespace tokamak::sim {

// Keeps a schedule's first failure.
class Verdict {
 public:
  void Fail(std::string what) {
    if (what_.empty()) what_ = std::move(what);
  }
  bool ok() const { return what_.empty(); }
  const std::string& what() const { return what_; }

 private:
  std::string what_;
};

struct FakeExecutorOptions {
  ExecutorLimits limits;
  TokenModel model;
  double step_seconds = 1e-3;
  double token_seconds = 1e-5;
  double image_row_seconds = 0;
  double jitter = 0;             // a stage's part takes up to (1 + jitter) times as long
  int32_t failure_permille = 0;  // per Submit, Sample, Wait and Lost
  int32_t reset_failure_percent = 0;
};

// An independent model of slots and blocks that knows only StepInputs. A position's cache entry is
// the hash of its prefix, including the salt and the kind of its RoPE factors
// (CacheSpec::original_context). A copy copies a whole block's entries. With
// CacheSpec::sequence_state a slot also has a state: the entry of the last position computed in it,
// drafts included, whichever sequence that was of. Images are encoded when the step that has them
// is submitted. Steps take simulated time, on each stage of a pipeline an equal part, and finish in
// order. A step begins when the tokens that it needs have been drawn.
class FakeExecutor final : public Executor {
 public:
  FakeExecutor(FakeExecutorOptions options, uint64_t seed, ManualClock* clock, Verdict* verdict);

  const ExecutorLimits& limits() const override { return options_.limits; }
  Status Submit(StepInput step) override;
  Status Sample(uint64_t number) override;
  Status SampleMasked(uint64_t number, std::vector<TokenMask> masks) override;
  bool Done(uint64_t number) override;
  Result<StepOutput> Wait(uint64_t number) override;
  Status Reset() override;
  Status Lost() override;
  // Drops its steps as an error does. Reset must follow.
  void Abandon() { broken_ = true; }

  // Called with every step before it takes effect.
  std::function<void(const StepInput&)> on_submit;

  int64_t num_steps() const { return num_steps_; }
  int64_t num_rows() const { return num_rows_; }
  int64_t num_copies() const { return num_copies_; }
  int64_t num_failures() const { return num_failures_; }
  int64_t num_drafts() const { return num_drafts_; }
  int64_t num_accepted() const { return num_accepted_; }
  int64_t num_masked_accepted() const { return num_masked_accepted_; }
  int64_t num_proposals() const { return num_proposals_; }
  int64_t num_forks() const { return num_forks_; }
  int64_t num_encoded() const { return num_encoded_; }
  // The images in the encoder cache, and their numbers of rows.
  const std::map<ImageId, int32_t>& images() const { return images_; }

 private:
  struct Slot {
    bool used = false;
    uint64_t life = 0;  // distinguishes the sequences that had this slot
    bool long_rope = false;
    std::vector<TokenId> tokens;
    std::vector<ImageSpan> images;
    std::vector<uint64_t> prefixes;  // [tokens]: hash of the tokens up to and including this one
    int32_t num_prompt = 0;
    int32_t computed = 0;
    int64_t last_row = -1;        // the step of its last row
    int64_t last_draw = -1;       // the step of its last row that samples
    int64_t draft_row = -1;       // the step of its last row with drafts
    std::vector<TokenId> drafts;  // of that row
    int32_t num_proposals = 0;    // that its last row wants
    int32_t num_candidates = 0;   // the same
    bool drawn = false;           // it has drawn tokens since it was admitted
    SamplingParams sampling;
    int32_t choice = 0;
    std::vector<std::vector<BlockId>> tables;  // by group
  };
  struct StepInFlight {
    StepOutput output;
    std::vector<size_t> draws;         // rows that sample without a mask
    std::vector<size_t> masked_draws;  // rows that wait for one
    TimePoint done{};
    bool sampled = false;
    bool masked_sampled = false;

    bool all_sampled() const { return sampled && (masked_sampled || masked_draws.empty()); }
  };

  bool Injected(int32_t permille);
  void Free(SequenceSlotId slot);
  void Copy(const CopyBlock& copy);
  // Returns how many rows were encoded.
  int32_t EncodeImages(const StepInput& step);
  void CheckSpans(const AdmitSequence& admit);
  // The row computes positions [start, end).
  void CheckImages(const Slot& slot, int32_t start, int32_t end);
  void Admit(const AdmitSequence& admit);
  void Fork(const ForkSequence& fork);
  void Append(const AppendBlocks& append);
  void CheckCandidates(const Slot& slot, const StepRow& row, int32_t end);
  RowOutput RunRow(const StepRow& row);
  // Returns when a step that begins at `start` is done. `seconds`: its time on all stages together;
  // `noise`: a factor for the first.
  TimePoint RunStages(TimePoint start, double seconds, double noise);
  void CheckPast(const Slot& slot, int32_t group, int32_t start);
  void WriteRow(const Slot& slot, int32_t group, int32_t start, int32_t num_tokens);
  // A row of positions [start, end) finds the state behind `start`, and leaves that behind `end`.
  void AdvanceState(SequenceSlotId id, int32_t start, int32_t end);
  // Writes the entry of one position, for a row of this step.
  void WriteEntry(const Slot& slot, int32_t group, int32_t position, uint64_t entry, int64_t step);
  // Of a row that ends at `end`.
  void CheckProposals(const Slot& slot, const StepRow& row, int32_t end);
  void CheckMasks(const StepInFlight& step, const std::vector<TokenMask>& masks);
  void Draw(const std::vector<size_t>& rows, const std::vector<TokenMask>& masks);
  // Returns whether a token was drawn, the first of its row or one more.
  bool DrawToken(const TokenMask* mask, RowOutput* out);
  void FindCandidates(const TokenMask* mask, RowOutput* out) const;
  // Proposes some of the tokens that will be drawn, and wrong ones, as a draft model does. Its
  // entries make the positions behind the computed ones useless.
  void Propose(RowOutput* out);
  uint64_t Entry(const Slot& slot, int32_t group, int32_t position) const {
    constexpr uint64_t kLongRopeEntry = 0x5317c4ed;
    return slot.prefixes[position] + static_cast<uint64_t>(group) +
           (slot.long_rope ? kLongRopeEntry : 0);
  }
  bool InFlight(int64_t step) const { return step >= oldest_; }
  template <typename T>
  Result<T> Received(Result<T> value);  // fails if it is not OK
  template <typename... Args>
  void Fail(const char* format, Args... args);

  const FakeExecutorOptions options_;
  const int32_t block_size_;
  Rng rng_;
  ManualClock* const clock_;
  Verdict* const verdict_;

  std::vector<Slot> slots_;
  std::vector<uint64_t> device_;  // [blocks, block_size]: entries
  std::vector<uint64_t> host_;
  std::vector<uint64_t> states_;      // by slot
  std::vector<int64_t> named_by_;     // by device block: the last step whose rows used it
  std::vector<uint64_t> named_life_;  // the life of the sequence that used it; 0: several
  std::map<ImageId, int32_t> images_;
  std::deque<StepInFlight> steps_in_flight_;
  bool broken_ = false;  // an error was returned; Reset must follow
  uint64_t next_number_ = 0;
  int64_t oldest_ = 0;  // the oldest step that has not retired
  uint64_t lives_ = 0;
  std::vector<TimePoint> busy_until_;  // by stage
  TimePoint needs_{};                  // when the tokens that the step needs are drawn
  int64_t num_steps_ = 0;
  int64_t num_rows_ = 0;
  int64_t num_copies_ = 0;
  int64_t num_failures_ = 0;
  int64_t num_drafts_ = 0;
  int64_t num_accepted_ = 0;
  int64_t num_masked_accepted_ = 0;
  int64_t num_proposals_ = 0;
  int64_t num_forks_ = 0;
  int64_t num_encoded_ = 0;
};

}  // namespace tokamak::sim
