#include "engine/fair_share.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tokamak {

void FairShare::Join(Sequence* sequence) {
  RequestState& request = *sequence->request;
  ClientLevel& level = levels_[request.priority];
  ClientQueue& queue = level.queues[request.client];
  queue.level = &level;
  const int64_t behind = level.virtual_time - queue.served;
  if (queue.num_waiting == 0 && behind > 0) {
    queue.served += behind;
    queue.turn_start += behind;
  }
  queue.sequences.insert(sequence);
  request.queue = &queue;
}

void FairShare::Leave(Sequence* sequence) {
  RequestState& request = *sequence->request;
  ClientQueue& queue = *request.queue;
  if (*queue.sequences.begin() == sequence) EndTurn(&queue);
  CHECK(queue.sequences.erase(sequence) == 1);
  if (!queue.sequences.empty()) return;
  ClientLevel& level = *queue.level;
  level.queues.erase(request.client);
  if (level.queues.empty()) levels_.erase(request.priority);
}

void FairShare::CountWaiting(const Sequence& sequence, int32_t change) {
  sequence.request->queue->num_waiting += change;
}

void FairShare::EndTurn(ClientQueue* queue) {
  queue->turn_start = queue->served + queue->charged;
  queue->recomputed = 0;
}

// Virtual time is the mean service of the clients with something waiting: they take all that they
// can get, so it equals the service of a client that always took its share. If nobody waits, it is
// the service of the most served client.
void FairShare::BeginStep() {
  for (auto& [priority, level] : levels_) {
    int64_t most = INT64_MIN;
    int64_t sum = 0;
    int64_t num_waiting = 0;
    for (auto& [name, queue] : level.queues) {
      queue.served += std::exchange(queue.charged, 0);
      const bool advanced = std::exchange(queue.advanced, false);
      const int64_t quantum = std::max(quantum_, queue.recomputed);
      const bool over = advanced && queue.served >= queue.turn_start + quantum;
      if (over) EndTurn(&queue);
      most = std::max(most, queue.served);
      if (queue.num_waiting == 0) continue;
      sum += queue.served;
      ++num_waiting;
    }
    level.virtual_time = num_waiting == 0 ? most : sum / num_waiting;
  }
}

void FairShare::Charge(Sequence* sequence, int32_t start, int32_t end, int32_t num_rows) {
  ClientQueue& queue = *sequence->request->queue;
  const int32_t first_new = std::clamp(sequence->num_charged, start, end);
  queue.recomputed += int64_t{first_new - start} * num_rows;
  const int32_t tokens = end - first_new;
  if (tokens == 0) return;
  sequence->num_charged = end;
  queue.charged += int64_t{tokens} * num_rows;
  queue.advanced |= *queue.sequences.begin() == sequence;
}

FairShare::Walk::Walk(const FairShare& fair_share)
    : quantum_(fair_share.quantum_),
      level_(fair_share.levels_.begin()),
      last_level_(fair_share.levels_.end()) {
  if (level_ != last_level_) EnterLevel();
}

// Whether b's next sequence ranks above a's.
bool FairShare::Walk::GoesLater(const Head& a, const Head& b) {
  return a.rank != b.rank ? a.rank > b.rank : ByArrival()(*b.next, *a.next);
}

void FairShare::Walk::EnterLevel() {
  for (const auto& [name, queue] : level_->second.queues) {
    heads_.push_back({queue.turn_start, queue.sequences.begin(), queue.sequences.end()});
  }
  std::make_heap(heads_.begin(), heads_.end(), GoesLater);
}

Sequence* FairShare::Walk::Next() {
  if (heads_.empty()) {
    if (level_ == last_level_ || ++level_ == last_level_) return nullptr;
    EnterLevel();
  }
  std::pop_heap(heads_.begin(), heads_.end(), GoesLater);
  Head& head = heads_.back();
  Sequence* const sequence = *head.next;
  head.rank += quantum_;
  if (++head.next == head.end) {
    heads_.pop_back();
  } else {
    std::push_heap(heads_.begin(), heads_.end(), GoesLater);
  }
  return sequence;
}

}  // namespace tokamak
