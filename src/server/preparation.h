// What a request needs before the engine can have it.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/low_priority_pool.h"
#include "server/transport/mailbox.h"
#include "server/transport/response_writer.h"
#include "tokamak/status.h"

namespace tokamak {

// Parses, renders and tokenizes requests on a low-priority pool, because that takes time in
// proportion to their bodies. Used on the I/O thread alone, except `longest_seconds`.
class Preparation {
 public:
  explicit Preparation(const LowPriorityPool::Limits& limits) : pool_(limits) {}

  // A request that has arrived and that the engine does not have yet, until End.
  class Pending {
   public:
    Pending(Preparation& preparation, ResponseWriter& writer);
    ~Pending() { End(); }
    Pending(const Pending&) = delete;
    Pending& operator=(const Pending&) = delete;

    // Runs `prepare` with the request's body on the pool and returns what it returns. kUnavailable
    // if too much waits there; kCancelled if the client leaves or the server gives up before.
    template <typename T>
    Awaitable<Result<T>> Run(const std::function<Result<T>(std::string)>& prepare);
    void End();

   private:
    friend class Preparation;
    bool wanted() const { return !writer_.gone() && !abandoned_; }

    Preparation& preparation_;
    ResponseWriter& writer_;
    bool abandoned_ = false;
  };

  // From now on the server accepts nothing new. Calls `on_prepared` when no request is pending any
  // more, which may be at once.
  void StartDraining(std::function<void()> on_prepared);
  bool draining() const { return draining_; }
  // Ends what they wait for.
  void Abandon();
  // Ends the pool's threads, which waits for the jobs at hand. `on_prepared` is not called
  // afterwards.
  void Stop();
  size_t size() const { return pending_.size(); }
  // For how long the oldest job at hand has run; nothing if there is none. Thread-safe.
  std::optional<double> longest_seconds() const { return pool_.longest_seconds(); }

 private:
  void TellWhenPrepared();

  std::set<Pending*> pending_;
  bool draining_ = false;
  std::function<void()> on_prepared_;  // until it was called
  LowPriorityPool pool_;
};

template <typename T>
Awaitable<Result<T>> Preparation::Pending::Run(
    const std::function<Result<T>(std::string)>& prepare) {
  Mailbox<Result<T>> mail(writer_);
  std::string body = writer_.TakeBody();
  const size_t bytes = body.size();
  const Result<LowPriorityPool::JobId> job = preparation_.pool_.Push(
      bytes, [prepare, sender = mail.sender(), body = std::move(body)](
                 LowPriorityPool::JobId) mutable { sender.Put(prepare(std::move(body))); });
  if (!job.ok()) co_return job.status();
  std::vector<Result<T>> prepared = mail.Take();
  while (prepared.empty() && wanted()) {
    co_await writer_.Wait();
    prepared = mail.Take();
  }
  if (!wanted()) {
    preparation_.pool_.Cancel(*job);
    co_return Status(StatusCode::kCancelled, "nobody waits for the request any more");
  }
  co_return std::move(prepared.front());
}

}  // namespace tokamak
