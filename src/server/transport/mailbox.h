// Passes values from other threads to the I/O thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "server/transport/response_writer.h"

namespace tokamak {

// A queue that other threads fill and the I/O thread, its owner, empties, in order. Values that
// come after its end are dropped.
template <typename T>
class Mailbox {
  class State;

 public:
  // The sending side. Thread-safe; may outlive the mailbox.
  class Sender {
   public:
    void Put(T value) const { state_->Put(std::move(value)); }

   private:
    friend class Mailbox;
    explicit Sender(std::shared_ptr<State> state) : state_(std::move(state)) {}
    std::shared_ptr<State> state_;
  };

  // Calls `on_mail` on the I/O thread when there are new values.
  Mailbox(boost::asio::io_context& io, std::function<void()> on_mail)
      : state_(std::make_shared<State>(io, std::move(on_mail))) {}
  // Wakes the coroutine of a request when there are new values.
  explicit Mailbox(ResponseWriter& writer) : Mailbox(writer.io(), [&writer] { writer.Notify(); }) {}
  ~Mailbox() { Close(); }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Drops all values that come later.
  void Close() { state_->Close(); }
  Sender sender() const { return Sender(state_); }
  // Returns all values that have come since the last call.
  std::vector<T> Take() { return state_->Take(); }
  // Waits for the only value that will come. nullopt if the client leaves first.
  Awaitable<std::optional<T>> TakeOne(ResponseWriter& writer) {
    std::vector<T> values = Take();
    while (values.empty() && !writer.gone()) {
      co_await writer.Wait();
      values = Take();
    }
    std::optional<T> first;
    if (!values.empty()) first = std::move(values.front());
    co_return first;
  }

 private:
  class State : public std::enable_shared_from_this<State> {
   public:
    State(boost::asio::io_context& io, std::function<void()> on_mail)
        : io_(io), on_mail_(std::move(on_mail)) {}
    void Put(T value) EXCLUDES(mutex_) {
      MutexLock lock(mutex_);
      if (closed_) return;
      values_.push_back(std::move(value));
      // The mailbox is open, so the I/O thread is still there.
      if (values_.size() == 1)
        boost::asio::post(io_, [self = this->shared_from_this()] { self->Tell(); });
    }
    std::vector<T> Take() EXCLUDES(mutex_) {
      MutexLock lock(mutex_);
      return std::exchange(values_, {});
    }
    void Close() EXCLUDES(mutex_) {
      std::vector<T> dropped;  // destroyed after the lock is released
      MutexLock lock(mutex_);
      closed_ = true;
      dropped.swap(values_);
    }

   private:
    void Tell() EXCLUDES(mutex_) {
      {
        MutexLock lock(mutex_);
        if (closed_) return;
      }
      on_mail_();  // safe, because Close is called on this thread too
    }

    boost::asio::io_context& io_;
    const std::function<void()> on_mail_;
    Mutex mutex_;
    std::vector<T> values_ GUARDED_BY(mutex_);
    bool closed_ GUARDED_BY(mutex_) = false;
  };

  const std::shared_ptr<State> state_;
};

}  // namespace tokamak
