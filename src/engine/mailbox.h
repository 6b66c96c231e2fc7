// Mailbox: how other threads hand work to the engine thread.
#pragma once

#include <atomic>
#include <utility>
#include <variant>
#include <vector>

#include "engine/arrival.h"
#include "tokamak/engine_snapshot.h"
#include "tokamak/request.h"

namespace tokamak {

// An unbounded lock-free queue from many threads to one. Push never waits; the receiver can sleep
// without using the CPU. A thread's messages arrive in the order of its Push calls.
template <typename T>
class Mailbox {
 public:
  Mailbox() = default;
  ~Mailbox() { Free(newest_.load(std::memory_order_acquire)); }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Any thread.
  void Push(T message) {
    auto* node = new Node{nullptr, std::move(message)};
    Node* older = newest_.load(std::memory_order_relaxed);
    do {
      node->older = older;
    } while (!newest_.compare_exchange_weak(older, node, std::memory_order_release,
                                            std::memory_order_relaxed));
    // From here on the node belongs to the receiver. It sleeps only on an empty mailbox, so only
    // the first push must wake it.
    if (older == nullptr) newest_.notify_one();
  }

  // Receiver only: everything that has arrived, oldest first.
  std::vector<T> Take() {
    std::vector<T> messages;
    Node* node = newest_.exchange(nullptr, std::memory_order_acquire);
    while (node != nullptr) {
      messages.push_back(std::move(node->message));
      Node* older = node->older;
      delete node;
      node = older;
    }
    for (size_t i = 0, j = messages.size(); i + 1 < j; ++i) {
      std::swap(messages[i], messages[--j]);
    }
    return messages;
  }

  // Receiver only: sleeps until there is something to take.
  void WaitForWork() { newest_.wait(nullptr, std::memory_order_acquire); }

 private:
  struct Node {
    Node* older;
    T message;
  };

  static void Free(Node* node) {
    while (node != nullptr) delete std::exchange(node, node->older);
  }

  std::atomic<Node*> newest_{nullptr};
};

// The messages to the engine thread.
struct CancelMessage {
  RequestId request = 0;
};
struct CancelAllMessage {};
struct PauseMessage {
  RequestId request = 0;
};
struct ResumeMessage {
  RequestId request = 0;
};
struct SnapshotMessage {
  SnapshotCallback on_snapshot;
};
struct LostMessage {};  // Executor::Lost may have become an error
struct WakeMessage {};  // look at whatever else the thread watches (whether to stop, for example)
using EngineMessage = std::variant<Arrival, CancelMessage, CancelAllMessage, PauseMessage,
                                   ResumeMessage, SnapshotMessage, LostMessage, WakeMessage>;
using EngineMailbox = Mailbox<EngineMessage>;

}  // namespace tokamak
