#include "tokamak/output_stream.h"

#include <chrono>
#include <deque>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"
#include "local/merge_chunks.h"
#include "tokamak/engine.h"

namespace tokamak {

struct OutputStream::Queue {
  Mutex mutex;
  CondVar arrived;
  std::deque<OutputChunk> chunks GUARDED_BY(mutex);
};

OutputStream::OutputStream(Engine& engine, int32_t num_choices)
    : engine_(&engine),
      queue_(std::make_shared<Queue>()),
      num_choices_(num_choices),
      open_(num_choices) {}

OutputStream::~OutputStream() {
  if (queue_ != nullptr && id_ != 0 && open_ > 0) engine_->Cancel(id_);
}

std::optional<OutputChunk> OutputStream::Next() {
  if (open_ == 0) return std::nullopt;
  MutexLock lock(queue_->mutex);
  while (queue_->chunks.empty()) queue_->arrived.Wait(queue_->mutex);
  OutputChunk chunk = std::move(queue_->chunks.front());
  queue_->chunks.pop_front();
  if (chunk.finish_reason) --open_;
  return chunk;
}

std::vector<OutputChunk> OutputStream::Collect() {
  std::vector<OutputChunk> choices(static_cast<size_t>(num_choices_));
  while (std::optional<OutputChunk> chunk = Next()) {
    const auto choice = static_cast<size_t>(chunk->choice);
    MergeChunk(*std::move(chunk), &choices[choice]);
  }
  return choices;
}

bool OutputStream::WaitFor(double seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  MutexLock lock(queue_->mutex);
  while (open_ > 0 && queue_->chunks.empty()) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= left.zero()) return false;
    queue_->arrived.WaitFor(queue_->mutex, left);
  }
  return true;
}

void OutputStream::Cancel() { engine_->Cancel(id_); }

Result<OutputStream> Engine::Stream(Request request) {
  OutputStream stream(*this, request.sampling.n);
  ASSIGN_OR_RETURN(stream.id_,
                   Submit(std::move(request), [queue = stream.queue_](OutputChunk chunk) {
                     MutexLock lock(queue->mutex);
                     queue->chunks.push_back(std::move(chunk));
                     queue->arrived.NotifyOne();
                   }));
  return stream;
}

Result<std::vector<OutputChunk>> Engine::Generate(Request request) {
  ASSIGN_OR_RETURN(OutputStream stream, Stream(std::move(request)));
  return stream.Collect();
}

}  // namespace tokamak
