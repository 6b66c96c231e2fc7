// Streams, events and graphs, and what the host does once the device has reached a point in a
// stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "ops/cuda/calls.h"
#include "ops/cuda/memory.h"
#include "ops/sampler.h"
#include "tensor/device.h"
#include "tokamak/status.h"

namespace tokamak::cuda {

// A pinned block in use by enqueued work. When that is done, `deliver` (if any) turns what the
// block holds into results, and the block goes back to its pool.
struct Completion {
  using Deliver = void (*)(const std::byte* block, std::span<SampleResult> results);

  BlockPool::Block block;
  Deliver deliver = nullptr;
  std::span<SampleResult> results;
};

// The completions of one stream, oldest first. The stream's events refer to the queue too, because
// they tell the host how far the stream has come.
class CompletionQueue {
 public:
  explicit CompletionQueue(BlockPool& pinned) : pinned_(pinned), ring_(64) {}

  void Add(const Completion& completion);
  int64_t added() const { return added_; }
  // Call it when the stream has passed the first `count` completions ever added: delivers those.
  void Reached(int64_t count);
  // Call it when the stream will not go on: drops all completions.
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
  // Call NoteRecorded when the event is recorded, NoteReached when the host has found it reached.
  void NoteRecorded(const CudaStream& stream);
  void NoteReached() const;

 private:
  cudaEvent_t handle_ = nullptr;
  std::shared_ptr<CompletionQueue> completions_;  // of the stream in which it was last recorded
  int64_t count_ = 0;                             // completions added before it was recorded
};

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(cudaGraphExec_t handle) : handle_(handle) {}
  ~CudaGraph() override;

  cudaGraphExec_t handle() const { return handle_; }

 private:
  cudaGraphExec_t handle_;
};

// Makes a graph of what `run` puts into the stream, instead of doing it. Returns the guard's error
// if anything fails.
Result<std::unique_ptr<CudaGraph>> CaptureGraph(CallGuard& guard, cudaStream_t stream,
                                                FunctionRef<void()> run);

inline cudaStream_t Handle(Stream& stream) { return static_cast<CudaStream&>(stream).handle(); }

}  // namespace tokamak::cuda
