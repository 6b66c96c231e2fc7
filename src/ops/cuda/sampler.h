// The CUDA backend's Sampler. Everything that Sample, Score and FillTokens send to the device
// travels as a kernel's argument, except masks and drafts. The kernel writes results into pinned
// memory; they become SampleResults when the host finds that the stream has reached them
// (CompletionQueue).
//
// A launch takes up to kRowsPerLaunch rows of logits, with a CTA per row. Nothing here waits for
// the device. Plain draws allocate nothing. These allocate when they need more memory than ever
// before: masks, prompt logprobs, penalties (for a longer history, or in more slots than have
// memory from the start), DRY, lists (of biases, stop ids, allowed tokens and bad words) of more
// than 4 KiB, and logprobs of more alternatives than the default.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ops/cuda/memory.h"
#include "ops/cuda/sample_layout.h"
#include "ops/cuda/stream.h"
#include "ops/sampler.h"

namespace tokamak::cuda {

class CudaSampler final : public Sampler {
 public:
  // `pinned` is the backend's.
  static Result<std::unique_ptr<CudaSampler>> Make(const SamplerShape& shape, CallGuard& guard,
                                                   BlockPool& pinned);

  void Admit(SequenceSlotId slot, const SamplingParams& spec, int32_t choice,
             std::span<const TokenId> tokens, int32_t num_prompt, Stream& stream) override;
  void FillTokens(Tensor token_ids, std::span<const TokenFill> fills, Stream& stream) override;
  void Sample(Tensor logits, std::span<const SampleRow> rows, std::span<const TokenMask> masks,
              std::span<SampleResult> results, Stream& stream) override;
  void Propose(Tensor logits, std::span<const ProposalRow> rows, int32_t number,
               double least_logprob, std::span<SampleResult> results, Stream& stream) override;
  void FillProposals(Tensor token_ids, std::span<const TokenFill> fills, int32_t number,
                     Stream& stream) override;
  bool has_candidates() const override { return true; }
  void Score(Tensor logits, std::span<const TokenId> tokens, int32_t top,
             std::span<SampleResult> results, Stream& stream) override;

 private:
  // The blocks of the device pool that a slot holds.
  struct Held {
    BlockPool::Block lists;     // biases, stop ids, allowed tokens, bad words
    BlockPool::Block breakers;  // of DRY
    BlockPool::Block dry;       // lengths of repeats, then raw logits
    BlockPool::Block counts;    // counts, then raw logits
    BlockPool::Block history;   // the last tokens
    int32_t top_logprobs = 0;   // alternatives that the slot's draws have
  };

  CudaSampler(const SamplerShape& shape, CallGuard& guard, BlockPool& pinned);
  Status Start();
  void Release(Held& held);
  // Enqueues a copy from a pinned block, which goes back to its pool when the copy is done.
  void Upload(BlockPool::Block from, std::byte* to, size_t bytes, CudaStream& stream);
  void UploadLists(const SamplingParams& spec, Held& held, DeviceSlot& device, CudaStream& stream);
  void UploadBreakers(const SamplingParams& spec, Held& held, DeviceSlot& device,
                      CudaStream& stream);
  void StartDry(const SamplingParams& spec, Held& held, DeviceSlot& device, CudaStream& stream);
  void CountHistory(std::span<const TokenId> tokens, int32_t num_prompt, Held& held,
                    DeviceSlot& device, CudaStream& stream);
  void UploadHistory(std::span<const TokenId> tokens, int32_t size, Held& held, DeviceSlot& device,
                     CudaStream& stream);
  // Both return device memory for one call of Sample, or an empty block if there is none.
  BlockPool::Block UploadMasks(std::span<const TokenMask> masks, CudaStream& stream);
  // Behind the drafts (SampleArgs::drafts) there is room for SampleArgs::drawn.
  BlockPool::Block UploadDrafts(std::span<const SampleRow> rows, size_t num_draws,
                                CudaStream& stream);
  // The arguments that all launches over rows of logits from `first` on have in common.
  SampleArgs ArgsFor(const Tensor& logits, size_t first, BlockPool::Block records);
  // Fills in last[slot * stride].
  void Fill(Tensor token_ids, std::span<const TokenFill> fills, const int32_t* last, int32_t stride,
            Stream& stream);
  // Returns a pinned block with the records of all draws, and room for their most likely tokens.
  BlockPool::Block TakeRecords(std::span<const SampleRow> rows, size_t num_draws);
  static size_t AddRows(std::span<const SampleRow> rows, std::span<const TokenMask> masks,
                        SampleArgs* args, int* num_draws);
  size_t CountBytes() const;

  const SamplerShape shape_;
  const int32_t mask_words_;
  CallGuard& guard_;
  BlockPool& pinned_;
  BlockPool device_;
  Buffer slots_;      // DeviceSlot [max_seqs]
  Buffer last_;       // i32 [max_seqs]
  Buffer proposals_;  // i32 [max_seqs, max_proposals]
  std::vector<Held> held_;
};

}  // namespace tokamak::cuda
