#include "server/transport/response_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/status.hpp>
#include <utility>

namespace tokamak {
namespace {

namespace http = boost::beast::http;

// Clients only look at the number. Beast knows the older name of 413.
std::string ReasonOf(int status) {
  if (status == 413) return "Content Too Large";
  return http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status)));
}

}  // namespace

std::string FormatHead(const HttpResponse& response, bool keep_alive, bool chunked) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", response.status, ReasonOf(response.status));
  if (!response.content_type.empty()) head += "Content-Type: " + response.content_type + "\r\n";
  if (chunked) {
    head += "Transfer-Encoding: chunked\r\nX-Accel-Buffering: no\r\n";
  } else if (response.status != 204 && response.status != 304) {
    head += fmt::format("Content-Length: {}\r\n", response.body.size());
  }
  for (const auto& [name, value] : response.headers) head += name + ": " + value + "\r\n";
  head += keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return head;
}

ResponseWriter::ResponseWriter(boost::asio::io_context& io, HttpRequest request, Options options)
    : io_(io),
      wake_(io),
      request_(std::move(request)),
      options_(std::move(options)),
      keep_alive_(options_.keep_alive) {}

std::string ResponseWriter::TakeBody() { return std::exchange(request_.body, std::string()); }

void ResponseWriter::Start(HttpResponse& head) {
  status_ = head.status;
  if (options_.decorate) options_.decorate(request_, head);
}

void ResponseWriter::Respond(HttpResponse response) {
  if (gone_ || status_ != 0) return;
  Start(response);
  finished_ = true;
  unsent_ = FormatHead(response, keep_alive_, false);
  if (request_.method != "HEAD") {
    unsent_ += response.body;
    body_bytes_ = response.body.size();
  }
  Count();
  ToSend();
}

void ResponseWriter::StartStream(HttpResponse head) {
  if (gone_ || status_ != 0) return;
  if (!options_.chunks_allowed) keep_alive_ = false;  // the response ends with the connection
  Start(head);
  unsent_ = FormatHead(head, keep_alive_, true);
  if (!options_.chunks_allowed) {
    const std::string field = "Transfer-Encoding: chunked\r\n";
    unsent_.erase(unsent_.find(field), field.size());
  }
  ToSend();
}

void ResponseWriter::Write(std::string data) {
  if (gone_ || status_ == 0 || finished_ || data.empty()) return;
  body_bytes_ += data.size();
  unsent_ += options_.chunks_allowed ? fmt::format("{:x}\r\n{}\r\n", data.size(), data) : data;
  // The limit grows by the longest piece, because a long piece does not mean that the client is
  // slow.
  longest_ = std::max(longest_, data.size());
  if (unsent_.size() + taken_ > options_.max_unsent + longest_) return Drop();
  Count();
  ToSend();
}

void ResponseWriter::Finish() {
  if (gone_ || status_ == 0 || finished_) return;
  finished_ = true;
  if (options_.chunks_allowed) unsent_ += "0\r\n\r\n";
  ToSend();
}

void ResponseWriter::ToSend() {
  if (options_.to_send) options_.to_send();
}

Awaitable<bool> ResponseWriter::Wait(Clock::time_point deadline) {
  boost::system::error_code ignored;
  auto token = boost::asio::redirect_error(boost::asio::use_awaitable, ignored);
  while (!notified_ && !gone_ && Clock::now() < deadline) {
    wake_.expires_at(deadline);
    co_await wake_.async_wait(token);
  }
  co_return std::exchange(notified_, false) || gone_;
}

void ResponseWriter::Notify() {
  notified_ = true;
  wake_.cancel();
}

void ResponseWriter::Gone() {
  if (gone_ || complete_) return;
  gone_ = true;
  unsent_ = std::string();
  taken_ = 0;
  Count();
  Notify();
}

std::string ResponseWriter::TakeUnsent() {
  taken_ = unsent_.size();
  return std::exchange(unsent_, std::string());
}

void ResponseWriter::Sent() {
  taken_ = 0;
  if (unsent_.empty()) longest_ = 0;
  Count();
}

void ResponseWriter::Count() {
  const size_t ours = unsent_.size() + taken_;
  *options_.together += ours - counted_;  // modulo 2^64
  const bool grown = ours > counted_;
  counted_ = ours;
  if (grown && ours > kSmallUnsent && *options_.together > options_.max_together) return Drop();
  const bool full = ours > (backlogged_ ? max_backlog_ / 4 : max_backlog_ + longest_);
  if (std::exchange(backlogged_, full) != full) Notify();
}

void ResponseWriter::Drop() {
  Gone();
  if (options_.drop) options_.drop();
}

}  // namespace tokamak
