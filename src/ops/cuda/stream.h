// Streams, events and graphs, and the host's work when the device has reached a point of a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/cuda/calls.h"
#include "ops/cuda/memory.h"
#include "ops/sampler.h"
#include "tensor/device.h"

namespace tokamak::cuda {

// A pinned block in use by enqueued work. When that is done, `deliver` (if any) turns what the
// block holds into results, and the block goes back to its pool.
struct Completion {
  using Deliver = void (*)(const std::byte* block, std::span<SampleResult> results);

  BlockPool::Block block;
  Deliver deliver = nullptr;
  std::span<SampleResult> results;
};

// The completions of one stream, oldest first. Events of the stream share the queue, because they
// tell the host how far the stream has come.
class CompletionQueue {
 public:
  explicit CompletionQueue(BlockPool& pinned) : pinned_(pinned), ring_(64) {}

  void Add(const Completion& completion);
  int64_t added() const { return added_; }
  // Called when the stream has reached all completions up to the `count`th ever added.
  void Reached(int64_t count);
  // Called when nothing more will be reached.
  void Abandon();

 private:
  Completion& At(int64_t number) { return ring_[static_cast<size_t>(number) % ring_.size()]; }

  BlockPool& pinned_;
  std::vector<Completion> ring_;  // doubled when it is full
  int64_t added_ = 0;
  int64_t done_ = 0;
};

class CudaStream final : public Stream {
 public:
  // If CUDA refuses a stream, the handle is null and the guard has the error.
  CudaStream(CallGuard& guard, BlockPool& pinned);
  ~CudaStream() override;

  cudaStream_t handle() const { return handle_; }
  const std::shared_ptr<CompletionQueue>& completions() const { return completions_; }

 private:
  cudaStream_t handle_ = nullptr;
  std::shared_ptr<CompletionQueue> completions_;
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(CallGuard& guard, bool timed = false);
  ~CudaEvent() override;

  cudaEvent_t handle() const { return handle_; }
  // Must be called when the event is recorded, and when the host has found it reached.
  void NoteRecorded(const CudaStream& stream);
  void NoteReached() const;

 private:
  cudaEvent_t handle_ = nullptr;
  std::shared_ptr<CompletionQueue> completions_;  // of the stream it was last recorded in
  int64_t count_ = 0;                             // completions before it
};

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(cudaGraphExec_t handle) : handle_(handle) {}
  ~CudaGraph() override;

  cudaGraphExec_t handle() const { return handle_; }

 private:
  cudaGraphExec_t handle_;
};

inline cudaStream_t Handle(Stream& stream) { return static_cast<CudaStream&>(stream).handle(); }

}  // namespace tokamak::cuda
