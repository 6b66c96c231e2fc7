// One request and its response, as the request's coroutine sees them. Everything here happens on
// the I/O thread.
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

// A coroutine of the I/O thread. g++ 12 destroys temporaries with non-trivial destructors twice
// when they live across a co_await (PR 99576 and others): every argument of a function that is
// awaited is a named variable or a trivial value.
template <typename T = void>
using Awaitable = boost::asio::awaitable<T>;

// A response as bytes. `chunked`: without its body, whose length is not known.
std::string FormatHead(const HttpResponse& response, bool keep_alive, bool chunked);

// The response is either one Respond, or StartStream, Writes and Finish. Once the client is gone
// these do nothing.
class ResponseWriter {
 public:
  using Clock = std::chrono::steady_clock;

  // Unread text of many clients may add up to more than a machine has: when it is more than
  // `max_together`, clients that have left more than this unread are dropped.
  static constexpr size_t kSmallUnsent = 64 << 10;

  struct Options {
    bool keep_alive = false;
    bool chunks_allowed = false;  // HTTP/1.1
    // A client that leaves more of a stream unread than this and one piece is dropped.
    size_t max_unsent = 0;
    size_t max_together = 0;             // of all exchanges that share `together`
    size_t* together = nullptr;          // outlives the writer
    std::function<void()> drop = {};     // ends the connection; may be null
    std::function<void()> to_send = {};  // there is something to send; may be null
    std::function<void(const HttpRequest&, HttpResponse&)> decorate = {};  // may be null
  };
  ResponseWriter(boost::asio::io_context& io, HttpRequest request, Options options);
  ResponseWriter(const ResponseWriter&) = delete;
  ResponseWriter& operator=(const ResponseWriter&) = delete;

  RequestNotes notes;  // the handler's, for the access log

  // Its body is empty after TakeBody.
  const HttpRequest& request() const { return request_; }
  std::string TakeBody();
  void Respond(HttpResponse response);

  // A response of unknown length; every Write goes out at once. `head` has no body.
  void StartStream(HttpResponse head);
  void Write(std::string data);
  void Finish();

  // Waits for a Notify, which may have come before; for the client to leave; or for its backlog to
  // change. Returns false when none of them has happened by `deadline`.
  Awaitable<bool> Wait(Clock::time_point deadline = Clock::time_point::max());
  void Notify();
  // The client has left before the response was complete.
  bool gone() const { return gone_; }
  // The client has left more than `bytes` of a stream and its longest piece lying, and has not
  // taken in most of that since.
  void LimitBacklog(size_t bytes) { max_backlog_ = bytes; }
  bool backlogged() const { return backlogged_; }
  boost::asio::io_context& io() { return io_; }

  // Of the response so far, for the access log.
  int status() const { return status_; }  // 0: there is none
  size_t body_bytes() const { return body_bytes_; }
  bool finished() const { return finished_; }

  // The rest is for the connection.
  void Gone();
  // All bytes of the response are with the kernel: the client can no longer leave it early.
  void Complete() { complete_ = true; }
  bool keep_alive() const { return keep_alive_; }
  // The text that is taken counts as unsent until Sent.
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
  size_t longest_ = 0;  // of the pieces that lie there
  size_t counted_ = 0;  // of ours in *options_.together
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
