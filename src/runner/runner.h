// Runner: one device's part of every step. Turns a StepInput into a packed batch, runs the model
// and the sampler on it, and gives a StepOutput. Knows the hardware through Ops alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"
#include "ops/ops.h"
#include "runner/graph_runner.h"
#include "runner/kv_pool.h"
#include "runner/sequence_slots.h"
#include "runner/step_in_flight.h"
#include "step/step_input.h"
#include "step/step_output.h"
#include "tensor/arena.h"
#include "tokamak/status.h"

namespace tokamak {

// How large steps may get, and what the cache is made of.
struct RunnerShape {
  int32_t max_seqs = 64;          // sequences with state at the same time
  int32_t max_step_tokens = 512;  // tokens in one step
  int32_t max_context = 0;        // positions of one sequence
  int32_t block_size = 16;        // positions per block
  DType kv_dtype = DType::kF32;
  int depth = 1;                     // steps in flight at once
  std::string cuda_graphs = "auto";  // of decode steps: on, off or auto
  bool expert_loads = false;         // give StepOutput::expert_loads
};

// Staging memory has room for what the rows of a step append and for a few whole tables: a step
// that admits more long sequences with cached prefixes uploads their tables in pieces.
StepShape MakeStepShape(const RunnerShape& shape, const nn::CacheLayout& cache);

// Memory, as ProfileMemory (runner/memory_profile.h) finds it.
struct RunnerMemory {
  int64_t arena_bytes = 0;  // activations and logits of one step
  int32_t num_device_blocks = 0;
  int32_t num_host_blocks = 0;
};

// Steps go through Submit, Sample and Wait, each step through all three and Sample(n) before
// Submit(n + 1); up to `depth` steps are submitted and not yet waited for. Submit and Sample only
// enqueue work where the backend is asynchronous. A token that a step draws reaches the next step's
// input on the device, whether or not the host has waited for it.
//
// After an error from any call all further calls give that error, until Reset. A step that is
// refused has started no work.
// Owner: the engine's thread.
class Runner {
 public:
  // `model` and `ops` outlive the runner. kUnimplemented when the layers of a cache group differ in
  // shape; kResourceExhausted when memory runs out.
  static Result<std::unique_ptr<Runner>> Create(const Model& model, Ops& ops,
                                                const RunnerShape& shape,
                                                const RunnerMemory& memory);
  ~Runner();

  const CacheSpec& cache() const { return pool_.spec(); }
  const RunnerShape& shape() const { return shape_; }
  int32_t vocab_size() const { return model_.spec().vocab_size; }
  // Of the memory that it has taken: the pool's without the host tier, and beside it what steps
  // need, of the arena what they have used so far.
  int64_t bytes() const;

  Status Submit(StepInput step);
  Status Sample(uint64_t number, std::vector<TokenMask> masks);
  // True when Wait(number) would return at once.
  bool Done(uint64_t number);
  Result<StepOutput> Wait(uint64_t number);
  Status Reset();

 private:
  Runner(const Model& model, Ops& ops, const RunnerShape& shape, KvPool pool);
  Status Init(const RunnerMemory& memory);
  Status MakeGroups();
  Status CaptureGraphs();
  // One token for each row, and its logits: nothing else.
  bool IsDecode(const StepInput& step) const;
  // Table entries that a step in flight has no room for, ahead of its batch.
  Status UploadExcessTables(StepInFlight* in_flight);
  void Upload(const StepInFlight& in_flight);

  StepInFlight& InFlight(uint64_t number) {
    return steps_in_flight_[number % steps_in_flight_.size()];
  }
  Status CheckSubmit(const StepInput& step) const;
  Status CheckSample(uint64_t number, const std::vector<TokenMask>& masks);
  Tensor Tables(size_t group) const;
  // Plans attention over the uploaded batch.
  nn::Pass MakePass(const StepInFlight& in_flight);
  void Forward(StepInFlight* in_flight);
  // Whether all draws of a step can be expected to be the largest logits.
  bool IsGreedy(const StepInFlight& in_flight) const;
  void ScorePrompt(nn::Pass& pass, Tensor hidden, StepInFlight* in_flight);
  StepOutput MakeOutput(const StepInFlight& in_flight) const;
  // i32 [MoE layers, max_experts + 1] in this memory, or empty where no loads are wanted.
  Tensor ExpertOffsets(const Buffer& memory) const;
  std::vector<int32_t> ExpertLoads(const StepInFlight& in_flight) const;
  Status Fail(Status status);

  const Model& model_;
  Ops& ops_;
  const RunnerShape shape_;
  KvPool pool_;
  StepShape step_shape_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Sampler> sampler_;
  GraphRunner graph_runner_;
  std::unique_ptr<Arena> arena_;
  // The batch on the device and all block tables. Steps follow each other on the stream, so one of
  // each is enough however many steps are in flight.
  Buffer batch_;
  Buffer expert_offsets_;
  std::vector<std::unique_ptr<AttentionPlan>> plans_;  // per group
  std::vector<Buffer> tables_;                         // per group: i32 [max_seqs, max_blocks]
  std::vector<nn::AttentionMetadata> groups_;
  SequenceSlots slots_;
  std::vector<bool> masked_;                   // slots that got a mask: they may get more
  std::vector<StepInFlight> steps_in_flight_;  // step n uses entry n % depth
  uint64_t next_submit_ = 0;
  uint64_t next_sample_ = 0;
  uint64_t next_wait_ = 0;
  Status failed_;
};

// Rows of logits that one call scores, for prompt logprobs: bounds their memory.
inline constexpr int32_t kScoredRowsAtOnce = 64;

}  // namespace tokamak
