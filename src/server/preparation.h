// The way of a request to the engine, on a low-priority pool.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "server/low_priority_pool.h"
#include "server/transport/mailbox.h"
#include "server/transport/response_writer.h"
#include "tokamak/status.h"

namespace tokamak {

// Parses, renders and tokenizes requests on a low-priority pool, because that takes time in
// proportion to their bodies. Used only on the I/O thread, except `longest_seconds`.
class Preparation {
 public:
  explicit Preparation(const LowPriorityPool::Limits& limits) : pool_(limits) {}

  // A request that has arrived and that the engine does not have yet. It is pending until End or
  // the destructor is called.
  class Pending {
   public:
    Pending(Preparation& preparation, ResponseWriter& writer);
    ~Pending() { End(); }
    Pending(const Pending&) = delete;
    Pending& operator=(const Pending&) = delete;

    // Calls `prepare` with the request's body on the pool and returns its result. kUnavailable if
    // too much waits for the pool; kCancelled if the client leaves or Abandon is called first.
    template <typename Prepare>
    Awaitable<std::invoke_result_t<Prepare, std::string>> Run(const Prepare& prepare);
    // The same for further work on `bytes` bytes that takes longer than they say: it never delays
    // small requests.
    template <typename Work>
    Awaitable<std::invoke_result_t<Work>> RunLarge(size_t bytes, Work work) {
      return RunJob(bytes + preparation_.pool_.small_bytes() + 1, std::move(work));
    }
    // Waits for mail. Returns none if the client leaves or Abandon is called first.
    template <typename T>
    Awaitable<std::vector<T>> Receive(Mailbox<T>& mail);
    void End();
    ResponseWriter& writer() { return writer_; }

   private:
    friend class Preparation;
    bool wanted() const { return !writer_.gone() && !abandoned_; }
    template <typename Work>
    Awaitable<std::invoke_result_t<Work>> RunJob(size_t bytes, Work work);

    Preparation& preparation_;
    ResponseWriter& writer_;
    bool abandoned_ = false;
  };

  // The server accepts no new requests from now on. Calls `on_prepared` as soon as no request is
  // pending, perhaps at once.
  void StartDraining(std::function<void()> on_prepared);
  bool draining() const { return draining_; }
  // Gives up all pending requests: their Run returns kCancelled.
  void Abandon();
  static Status Unwanted() {
    return Status(StatusCode::kCancelled, "nobody waits for the request any more");
  }
  // Ends the pool's threads after their current jobs. `on_prepared` is not called afterwards.
  void Stop();
  size_t size() const { return pending_.size(); }
  // Returns how long the oldest running job has run; nullopt if none runs. Thread-safe.
  std::optional<double> longest_seconds() const { return pool_.longest_seconds(); }

 private:
  void TellWhenPrepared();

  std::set<Pending*> pending_;
  bool draining_ = false;
  std::function<void()> on_prepared_;  // null once it was called
  LowPriorityPool pool_;
};

template <typename Prepare>
Awaitable<std::invoke_result_t<Prepare, std::string>> Preparation::Pending::Run(
    const Prepare& prepare) {
  std::string body = writer_.TakeBody();
  const size_t bytes = body.size();
  return RunJob(bytes,
                [prepare, body = std::move(body)]() mutable { return prepare(std::move(body)); });
}

template <typename Work>
Awaitable<std::invoke_result_t<Work>> Preparation::Pending::RunJob(size_t bytes, Work work) {
  using Prepared = std::invoke_result_t<Work>;
  Mailbox<Prepared> mail(writer_);
  const Result<LowPriorityPool::JobId> job =
      preparation_.pool_.Push(bytes, [sender = mail.sender(), work = std::move(work)](
                                         LowPriorityPool::JobId) mutable { sender.Put(work()); });
  if (!job.ok()) co_return job.status();
  std::vector<Prepared> prepared = co_await Receive(mail);
  if (prepared.empty()) {
    preparation_.pool_.Cancel(*job);
    co_return Unwanted();
  }
  co_return std::move(prepared.front());
}

template <typename T>
Awaitable<std::vector<T>> Preparation::Pending::Receive(Mailbox<T>& mail) {
  std::vector<T> values = mail.Take();
  while (values.empty() && wanted()) {
    co_await writer_.Wait();
    values = mail.Take();
  }
  if (!wanted()) values.clear();
  co_return values;
}

}  // namespace tokamak
