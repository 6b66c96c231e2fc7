#include "ops/cuda/stream.h"

#include <utility>

#include "base/error.h"

namespace tokamak::cuda {

void CompletionQueue::Add(const Completion& completion) {
  if (added_ - done_ == static_cast<int64_t>(ring_.size())) {
    std::vector<Completion> larger(2 * ring_.size());
    for (int64_t i = done_; i < added_; ++i) {
      larger[static_cast<size_t>(i) % larger.size()] = At(i);
    }
    ring_ = std::move(larger);
  }
  At(added_++) = completion;
}

void CompletionQueue::Reached(int64_t count) {
  while (done_ < count) {
    const Completion& done = At(done_++);
    if (done.deliver != nullptr) done.deliver(done.block.data, done.results);
    pinned_.Give(done.block);
  }
}

void CompletionQueue::Abandon() { done_ = added_; }

CudaStream::CudaStream(CallGuard& guard, BlockPool& pinned)
    : completions_(std::make_shared<CompletionQueue>(pinned)) {
  // This stream and the default stream do not wait for each other.
  CUDA_RUN(guard, cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking));
}

CudaStream::~CudaStream() {
  if (handle_ != nullptr) (void)cudaStreamDestroy(handle_);
}

CudaEvent::CudaEvent(CallGuard& guard, bool timed) {
  const unsigned flags = timed ? cudaEventDefault : cudaEventDisableTiming;
  CUDA_RUN(guard, cudaEventCreateWithFlags(&handle_, flags));
}

CudaEvent::~CudaEvent() {
  if (handle_ != nullptr) (void)cudaEventDestroy(handle_);
}

void CudaEvent::NoteRecorded(const CudaStream& stream) {
  completions_ = stream.completions();
  count_ = completions_->added();
}

void CudaEvent::NoteReached() const {
  if (completions_) completions_->Reached(count_);
}

CudaGraph::~CudaGraph() { (void)cudaGraphExecDestroy(handle_); }

Result<std::unique_ptr<CudaGraph>> CaptureGraph(CallGuard& guard, cudaStream_t stream,
                                                FunctionRef<void()> run) {
  // Thread-local, so that the capture does not forbid calls to other threads.
  RETURN_IF_ERROR(
      CUDA_TRY(guard, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)));
  run();
  cudaGraph_t graph = nullptr;
  if (!CUDA_RUN(guard, cudaStreamEndCapture(stream, &graph))) {
    // After an earlier error the guard has not made the call. Ends the capture all the same,
    // because the stream must not stay in this state.
    if (graph == nullptr) (void)cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    return guard.status();
  }
  cudaGraphExec_t instance = nullptr;
  const Status status = CUDA_TRY(guard, cudaGraphInstantiate(&instance, graph, 0));
  (void)cudaGraphDestroy(graph);
  RETURN_IF_ERROR(status);
  return std::make_unique<CudaGraph>(instance);
}

}  // namespace tokamak::cuda
