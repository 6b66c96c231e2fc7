// Runner: one device's part of every step. Packs a StepInput into a batch, runs the model and the
// sampler on it, and returns a StepOutput. Reaches the hardware only through Ops.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"
#include "ops/ops.h"
#include "runner/drafter.h"
#include "runner/graph_runner.h"
#include "runner/image_runner.h"
#include "runner/joined_cache.h"
#include "runner/kv_pool.h"
#include "runner/sequence_slots.h"
#include "runner/state_pool.h"
#include "runner/step_in_flight.h"
#include "step/step_input.h"
#include "step/step_output.h"
#include "tensor/arena.h"
#include "tokamak/option_values.h"
#include "tokamak/status.h"

namespace tokamak {

// The limits of a step and the shape of the cache.
struct RunnerShape {
  int32_t max_seqs = 64;
  int32_t max_step_tokens = 512;
  int32_t max_step_drafts = 0;  // of all rows of a step; as many for their next rows
  // A proposal of the draft model that is less likely than this ends the sequence's drafts.
  float draft_min_probability = 0;
  int32_t max_context = 0;  // positions of one sequence
  int32_t block_size = 16;
  DType kv_dtype = DType::kF32;
  // Rows of images that the encoder cache holds, and that the images of one step may have together.
  // 0: prompts show no images.
  int32_t max_encoder_rows = 0;
  int32_t max_step_image_rows = 0;
  int depth = 1;  // steps in flight at once
  CudaGraphs cuda_graphs = CudaGraphs::kAuto;
  bool expert_loads = false;                       // fill StepOutput::expert_loads
  std::optional<float> synthetic_acceptance = {};  // of SamplerShape
};

// Staging memory has room for the blocks that a step's rows append and for a few whole tables. A
// step that admits more sequences with long cached prefixes uploads their tables in pieces.
StepShape MakeStepShape(const RunnerShape& shape, const nn::CacheLayout& cache);

// A pass of the image encoder takes as many of its tokens as the images of one step have.
ImageRunnerShape MakeImageRunnerShape(const RunnerShape& shape, const ImageEncoderSpec& encoder);
// Memory for images besides the encoder's weights; 0 if prompts show none.
Result<int64_t> EncoderBytes(const ImageEncoder& encoder, const RunnerShape& shape);

// Memory sizes that ProfileMemory (runner/memory_profile.h) found.
struct RunnerMemory {
  int64_t arena_bytes = 0;  // activations and logits of one step
  int32_t num_device_blocks = 0;
  int32_t num_host_blocks = 0;
};

// Submit, Sample, SampleMasked, Wait and Reset follow the protocol of Executor
// (executor/executor.h). On an asynchronous backend all but Wait and Reset only enqueue work. A
// drawn token reaches the next step's input on the device, even if the host has not yet waited for
// it. Only a draft model's proposals are enqueued when the host knows the draws before them: by
// Done or Wait, or by the next Submit, which waits for these draws.
//
// On one stage of a pipeline the runner computes that stage's layers of each step, and hands the
// hidden states to the next stage. The last one draws, and sends what it drew to all others, which
// return it from Wait, and which need no SampleMasked.
//
// After an error all calls return that error, until Reset. A refused step has started no work.
// Engine thread only.
class Runner {
 public:
  // `model`, `ops` and the draft model, if there is one, must outlive the runner. kUnimplemented if
  // the layers of a cache group differ in shape; kResourceExhausted if memory runs out;
  // kInvalidArgument if the shape has an encoder cache, but the model no image encoder.
  static Result<std::unique_ptr<Runner>> Create(const Model& model, Ops& ops,
                                                const RunnerShape& shape,
                                                const RunnerMemory& memory,
                                                const Model* draft = nullptr);
  ~Runner();

  const CacheSpec& cache() const { return pool_.spec(); }
  const RunnerShape& shape() const { return shape_; }
  int32_t vocab_size() const { return model_.spec().vocab_size; }
  bool has_candidates() const { return sampler_->has_candidates(); }
  // ExecutorLimits::whole_image_rows.
  int32_t whole_image_rows() const {
    return step_shape_.bidirectional_images ? model_.image_encoder()->spec().max_image_rows : 0;
  }
  // Bytes of memory in use: the KV pool without the host tier, the states, the buffers for steps,
  // and the arena's peak so far.
  int64_t bytes() const;

  Status Submit(StepInput step);
  Status Sample(uint64_t number);
  Status SampleMasked(uint64_t number, std::vector<TokenMask> masks);
  bool Done(uint64_t number);
  Result<StepOutput> Wait(uint64_t number);
  Status Reset();

 private:
  Runner(const Model& model, Ops& ops, const RunnerShape& shape, const nn::CacheLayout& cache,
         KvPool pool, bool proposes);
  Status Init(const RunnerMemory& memory, const Model* draft, std::vector<int32_t> draft_groups);
  Status MakeGroups();
  Status MakeImageRunner();
  Status CaptureGraphs();
  // Gives the sampler what the slot has.
  void AdmitToSampler(SequenceSlotId id);
  // The number of tokens to which the step is padded to run as a graph; 0 if it does not.
  int32_t PaddedTokens(const StepInput& step) const;
  // Uploads the table entries that a step has no room for, ahead of its batch.
  Status UploadExcessTables(StepInFlight* in_flight);
  void Upload(const StepInFlight& in_flight);

  StepInFlight& InFlight(uint64_t number) {
    return steps_in_flight_[number % steps_in_flight_.size()];
  }
  Tensor EncoderCache() const;
  // Encodes the images of a step that has been applied.
  Status EncodeImages(const StepInput& step);
  Status CheckSubmit(const StepInput& step) const;
  Status CheckMasks(const StepInFlight& in_flight, const std::vector<TokenMask>& masks) const;
  Tensor Tables(size_t group) const;
  // Plans attention over the uploaded batch.
  nn::Pass MakePass(const StepInFlight& in_flight);
  void Forward(StepInFlight* in_flight);
  // Whether a step's rows will all draw the largest logit.
  bool IsGreedy(const StepInFlight& in_flight) const;
  void ScorePrompt(nn::Pass& pass, Tensor hidden, StepInFlight* in_flight);
  // Call it after the step's last draw.
  Status EndSampling(StepInFlight* in_flight);
  // What stages exchange (runner_stages.cc).
  const StageSpec& stage() const { return model_.spec().stage; }
  void ReceiveHidden(nn::Pass& pass);
  void SendHidden(Tensor hidden);
  // The part of expert_offsets_ that the stages have filled, up to this one or to the one before.
  Tensor ExpertOffsetsUpTo(int32_t end_moe_layer) const;
  // On the last stage: waits for the draws of the oldest step that has them left, and sends them.
  Status SendDraws();
  // Sends those that the device has, and does not wait.
  Status SendReadyDraws();
  // On the others: receives them.
  Status ReceiveDraws();
  // Receives those that the step, which has been applied, continues.
  Status ReceiveDrawsFor(const StepInput& step);
  // Whether this stage's part of the step has ended with an error.
  bool DeviceFailed(const StepInFlight& in_flight);
  // The draft model's part of the step, but for proposals whose draws are not done.
  Status Draft(StepInFlight* in_flight);
  // Has the draft model do what must come before the next step is applied.
  Status EndDrafting();
  // Waits for the step's draws.
  Status Propose(StepInFlight* in_flight);
  Drafter::Shared SharedWithDrafter();
  // Tells the drafter what a step has drawn and computed. It must be done.
  void NoteDrawn(const StepInFlight& in_flight);
  double ProposingSeconds(const StepInFlight& in_flight) const;
  StepOutput MakeOutput(const StepInFlight& in_flight) const;
  // i32 [MoE layers, max_experts + 1] in `memory`; empty if loads are not wanted.
  Tensor ExpertOffsets(const Buffer& memory) const;
  std::vector<int32_t> ExpertLoads(const StepInFlight& in_flight) const;
  Status Fail(Status status);

  const Model& model_;
  Ops& ops_;
  const RunnerShape shape_;
  KvPool pool_;
  StatePool states_;
  StepShape step_shape_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Sampler> sampler_;
  GraphRunner graph_runner_;
  std::unique_ptr<Arena> arena_;
  // The batch on the device. One is enough for all steps in flight, because they follow each other
  // on the stream. The same holds for the block tables.
  Buffer batch_;
  Buffer expert_offsets_;
  std::vector<std::unique_ptr<AttentionPlan>> plans_;  // per group
  std::vector<Buffer> tables_;                         // per group: i32 [max_seqs, max_blocks]
  std::vector<nn::AttentionMetadata> groups_;
  SequenceSlots slots_;
  std::unique_ptr<ImageRunner> image_runner_;  // null: prompts show no images
  Buffer encoder_cache_;                       // f32 [max_encoder_rows, row_size]
  std::unique_ptr<Drafter> drafter_;           // null: no draft model
  std::vector<Drafter::Row> drafter_rows_;     // of the step being sampled
  std::vector<Tensor> drafter_tables_;         // of all groups
  std::vector<StepInFlight> steps_in_flight_;  // step n uses entry n % depth
  uint64_t next_submit_ = 0;
  uint64_t next_sample_ = 0;
  uint64_t num_sampled_ = 0;  // steps whose rows are all sampled, masked ones too
  uint64_t next_wait_ = 0;
  uint64_t next_draws_ = 0;  // several stages: steps whose draws have been sent or received
  Status failed_;
};

// Prompt logprobs are computed for this many rows of logits at once, to bound memory.
inline constexpr int32_t kScoredRowsAtOnce = 64;

}  // namespace tokamak
