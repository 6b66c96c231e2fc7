#include <algorithm>
#include <utility>

#include "rpc/message_stream.h"

namespace tokamak {

bool Inbox::Push(Incoming incoming) {
  // Far more than the steps in flight of all ranks.
  constexpr size_t kMaxMessages = 4096;
  const size_t size = incoming.message.ok() ? incoming.message->size() : 0;
  const MutexLock lock(mutex_);
  if (on_end_ && !incoming.message.ok()) on_end_(incoming);
  if (incoming.message.ok() &&
      (queue_.size() >= kMaxMessages || bytes_ + size > 2 * kMaxMessageBytes)) {
    return false;
  }
  bytes_ += size;
  queue_.push_back(std::move(incoming));
  changed_.NotifyOne();
  return true;
}

std::optional<Incoming> Inbox::Take(std::chrono::steady_clock::time_point deadline) {
  constexpr std::chrono::hours kLongest{1};
  const MutexLock lock(mutex_);
  while (queue_.empty()) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= left.zero()) return std::nullopt;
    // A deadline may be farther away than a condition variable can count.
    changed_.WaitFor(mutex_, std::min<std::chrono::steady_clock::duration>(left, kLongest));
  }
  Incoming incoming = std::move(queue_.front());
  queue_.pop_front();
  if (incoming.message.ok()) bytes_ -= incoming.message->size();
  return incoming;
}

}  // namespace tokamak
