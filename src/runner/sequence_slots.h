// What a runner knows about each sequence, and the rules that a step must keep.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "step/step_input.h"
#include "tokamak/status.h"

namespace tokamak {

struct SequenceSlot {
  bool active = false;
  std::vector<TokenId> tokens;  // as admitted; tokens drawn since live with the sampler
  int32_t num_prompt = 0;
  int32_t num_known = 0;     // tokens, with those drawn since by submitted steps
  int32_t num_computed = 0;  // positions whose cache entries submitted steps have written
  bool long_rope = false;    // CacheSpec::original_context: it was admitted with more tokens
  int32_t top_logprobs = -1;
  int32_t prompt_top_logprobs = -1;
  std::vector<std::vector<BlockId>> block_tables;  // one per cache group
};

// Owner: the runner's thread.
class SequenceSlots {
 public:
  struct Limits {
    int32_t max_seqs = 0;
    int32_t max_step_tokens = 0;
    int32_t max_context = 0;
    int32_t vocab_size = 0;
  };
  SequenceSlots(const Limits& limits, const CacheSpec& cache);

  // Takes the step's changes in: free, admit, append, rows. Admitted tokens are moved out of the
  // step. A step that breaks a rule gives kInternal, which names the rule, the slot and the
  // numbers; the table is unspecified then, until Clear.
  Status Apply(StepInput& step);
  void Clear();

  // What the last step appended to the tables of a group, as the device keeps them: one row per
  // slot, of as many entries as the context has blocks. `index` counts the entries of all rows.
  struct TableUpdate {
    int32_t index = 0;
    BlockId block = kNoBlock;
  };
  std::span<const TableUpdate> table_updates(int32_t group) const {
    return table_updates_[static_cast<size_t>(group)];
  }

  // The state after all applied steps. A row's first position is num_computed - row.num_tokens.
  const SequenceSlot& operator[](SequenceSlotId slot) const {
    return slots_[static_cast<size_t>(slot)];
  }

 private:
  Status Find(SequenceSlotId slot, SequenceSlot** found);
  Status Free(SequenceSlotId slot);
  Status CheckCopy(const CopyBlock& copy) const;
  Status CheckSampling(const SamplingSpec& sampling) const;
  Status Admit(AdmitSequence& admit);
  Status Append(const AppendBlocks& append);
  Status AddRow(const StepRow& row);
  int64_t MaxBlocks(const CacheGroup& group) const {  // of one sequence
    return (int64_t{limits_.max_context} + group.block_size - 1) / group.block_size;
  }
  Status CheckTables(const SequenceSlot& slot, int32_t begin, int32_t end) const;

  const Limits limits_;
  const CacheSpec cache_;
  std::vector<SequenceSlot> slots_;
  std::vector<std::vector<TableUpdate>> table_updates_;  // per group
  std::vector<bool> has_row_;                            // in the step being applied
};

}  // namespace tokamak
