// A request and the writer of its response. Used only on the I/O thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "server/monitor/request_notes.h"
#include "server/transport/http.h"

namespace tokamak {

// A coroutine of the I/O thread. g++ 12 destroys temporaries with non-trivial destructors twice if
// they live across a co_await (PR 99576 and others). So every argument of an awaited function is a
// named variable or a trivial value.
template <typename T = void>
using Awaitable = boost::asio::awaitable<T>;

// Returns the bytes of a response's head. `chunked`: the length of the body is not known yet.
std::string FormatHead(const HttpResponse& response, bool keep_alive, bool chunked);

// The response is either one Respond, or StartStream, Writes and Finish. These do nothing once the
// client has left.
class ResponseWriter {
 public:
  using Clock = std::chrono::steady_clock;

  // Unread output of many clients may exceed the machine's memory. When it exceeds `max_together`,
  // clients with more unread output than this are dropped.
  static constexpr size_t kSmallUnsent = 64 << 10;

  struct Options {
    bool keep_alive = false;
    bool chunks_allowed = false;  // HTTP/1.1
    // A client is dropped if its unread output exceeds this plus its longest piece.
    size_t max_unsent = 0;
    size_t max_together = 0;             // for all responses that share `together`
    size_t* together = nullptr;          // outlives the writer
    std::function<void()> drop = {};     // ends the connection; may be null
    std::function<void()> to_send = {};  // called when there is something to send; may be null
    std::function<void(const HttpRequest&, HttpResponse&)> decorate = {};  // may be null
  };
  ResponseWriter(boost::asio::io_context& io, HttpRequest request, Options options);
  ResponseWriter(const ResponseWriter&) = delete;
  ResponseWriter& operator=(const ResponseWriter&) = delete;

  RequestNotes notes;  // filled by the handler, for the access log

  // The body is empty after TakeBody.
  const HttpRequest& request() const { return request_; }
  std::string TakeBody();
  void Respond(HttpResponse response);

  // Starts a response of unknown length. `head` has no body. Every Write is sent at once.
  void StartStream(HttpResponse head);
  void Write(std::string data);
  void Finish();

  // Waits until Notify is called (perhaps before Wait), the client leaves, or backlogged() changes.
  // Returns false if none of them happens by `deadline`.
  Awaitable<bool> Wait(Clock::time_point deadline = Clock::time_point::max());
  void Notify();
  // True if the client has left before the response was complete.
  bool gone() const { return gone_; }
  // A stream becomes backlogged when its client leaves more than `bytes` and the longest piece
  // unread. It stays so until at most a quarter of `bytes` is unread.
  void LimitBacklog(size_t bytes) { max_backlog_ = bytes; }
  bool backlogged() const { return backlogged_; }
  boost::asio::io_context& io() { return io_; }

  // State of the response, for the access log.
  int status() const { return status_; }  // 0: not begun
  size_t body_bytes() const { return body_bytes_; }
  bool finished() const { return finished_; }

  // The rest is for Connection.
  void Gone();
  // The kernel has all bytes of the response: the client can no longer leave early.
  void Complete() { complete_ = true; }
  bool keep_alive() const { return keep_alive_; }
  // Takes the unsent output, which counts as unsent until Sent.
  std::string TakeUnsent();
  void Sent();
  bool has_unsent() const { return !unsent_.empty(); }

 private:
  void Start(HttpResponse& head);
  void ToSend();
  void Count();
  void Drop();

  boost::asio::io_context& io_;
  boost::asio::steady_timer wake_;  // cancelled by Notify
  HttpRequest request_;
  const Options options_;
  bool keep_alive_;
  std::string unsent_;
  size_t taken_ = 0;    // bytes that are being sent
  size_t longest_ = 0;  // longest unsent piece
  size_t counted_ = 0;  // our share of *options_.together
  int status_ = 0;
  size_t body_bytes_ = 0;
  bool notified_ = false;
  bool finished_ = false;
  bool complete_ = false;
  bool gone_ = false;
  size_t max_backlog_ = SIZE_MAX / 2;
  bool backlogged_ = false;
};

}  // namespace tokamak
