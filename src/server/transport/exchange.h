// A request and the bytes of its response that have not gone out yet. For this folder.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/transport/http.h"

namespace tokamak {

// A response as bytes. `chunked`: without its body, whose length is not known.
std::string FormatHead(const HttpResponse& response, bool keep_alive, bool chunked);

class Exchange final : public HttpExchange {
 public:
  // Unread text of many clients may add up to more than a machine has: when it is more than
  // `max_together`, clients that have left more than this unread are dropped.
  static constexpr size_t kSmallUnsent = 64 << 10;

  struct Options {
    bool keep_alive = false;
    bool chunks_allowed = false;  // HTTP/1.1
    // A client that leaves more of a stream unread than this and one piece is dropped.
    size_t max_unsent = 0;
    size_t max_together = 0;  // of all exchanges that share `together`
    std::shared_ptr<size_t> together;
    std::function<void()> drop;  // ends the connection; may be null
    std::function<void(const HttpRequest&, HttpResponse&)> decorate;  // may be null
  };
  Exchange(std::shared_ptr<boost::asio::io_context> io, HttpRequest request, Options options);

  const HttpRequest& request() const override { return request_; }
  std::string TakeBody() override;
  void Respond(HttpResponse response) override;
  void StartStream(HttpResponse head) override;
  void Write(std::string data) override;
  void Finish() override;
  void OnClientGone(std::function<void()> on_gone) override;
  void OnBacklog(size_t bytes, std::function<void(bool full)> on_backlog) override;
  void Post(std::function<void()> work) override;

  // The rest is for the connection.
  void Gone();
  // All bytes of the response are with the kernel: the client can no longer leave it early.
  void Complete();
  bool gone() const { return gone_; }
  bool finished() const { return finished_; }
  bool keep_alive() const { return keep_alive_; }
  // The text that is taken counts as unsent until Sent.
  std::string TakeUnsent();
  void Sent();
  bool has_unsent() const { return !unsent_.empty(); }
  // Never expires; cancelled when there is something to do.
  boost::asio::steady_timer& wake() { return wake_; }

 private:
  void Count();
  void Drop();

  std::shared_ptr<boost::asio::io_context> io_;  // outlives the server while we do
  boost::asio::steady_timer wake_;
  HttpRequest request_;
  const Options options_;
  bool keep_alive_;
  std::string unsent_;
  size_t taken_ = 0;    // bytes that are being sent
  size_t longest_ = 0;  // of the pieces that lie there
  size_t counted_ = 0;  // of ours in *options_.together
  bool started_ = false;
  bool finished_ = false;
  bool complete_ = false;
  bool gone_ = false;
  std::function<void()> on_gone_;
  std::function<void(bool full)> on_backlog_;
  size_t max_backlog_ = 0;
  bool full_ = false;  // what on_backlog_ was last called with
};

}  // namespace tokamak
