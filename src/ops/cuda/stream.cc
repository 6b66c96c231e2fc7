#include "ops/cuda/stream.h"

#include <utility>

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

}  // namespace tokamak::cuda
