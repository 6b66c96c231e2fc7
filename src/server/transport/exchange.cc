#include "server/transport/exchange.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

namespace tokamak {
namespace {

// RFC 9110, section 15; clients go by the number.
std::string_view ReasonOf(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    default:
      return status < 400 ? "OK" : "Error";
  }
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

Exchange::Exchange(std::shared_ptr<boost::asio::io_context> io, HttpRequest request,
                   Options options)
    : io_(std::move(io)),
      wake_(*io_),
      request_(std::move(request)),
      options_(std::move(options)),
      keep_alive_(options_.keep_alive) {
  wake_.expires_at(boost::asio::steady_timer::time_point::max());
}

std::string Exchange::TakeBody() { return std::exchange(request_.body, std::string()); }

void Exchange::Respond(HttpResponse response) {
  if (gone_ || started_) return;
  started_ = finished_ = true;
  if (options_.decorate) options_.decorate(request_, response);
  unsent_ = FormatHead(response, keep_alive_, false);
  if (request_.method != "HEAD") unsent_ += response.body;
  Count();
  wake_.cancel();
}

void Exchange::StartStream(HttpResponse head) {
  if (gone_ || started_) return;
  started_ = true;
  if (!options_.chunks_allowed) keep_alive_ = false;  // the end of the connection ends it
  if (options_.decorate) options_.decorate(request_, head);
  unsent_ = FormatHead(head, keep_alive_, true);
  if (!options_.chunks_allowed) {
    const std::string field = "Transfer-Encoding: chunked\r\n";
    unsent_.erase(unsent_.find(field), field.size());
  }
  wake_.cancel();
}

void Exchange::Write(std::string data) {
  if (gone_ || !started_ || finished_ || data.empty()) return;
  unsent_ += options_.chunks_allowed ? fmt::format("{:x}\r\n{}\r\n", data.size(), data) : data;
  // It is not the client's fault if a piece is long.
  longest_ = std::max(longest_, data.size());
  if (unsent_.size() + taken_ > options_.max_unsent + longest_) return Drop();
  Count();
  wake_.cancel();
}

void Exchange::Finish() {
  if (gone_ || !started_ || finished_) return;
  finished_ = true;
  if (options_.chunks_allowed) unsent_ += "0\r\n\r\n";
  wake_.cancel();
}

void Exchange::OnClientGone(std::function<void()> on_gone) {
  if (gone_) return on_gone();
  on_gone_ = std::move(on_gone);
}

void Exchange::OnBacklog(size_t bytes, std::function<void(bool full)> on_backlog) {
  if (gone_ || complete_) return;
  max_backlog_ = bytes;
  on_backlog_ = std::move(on_backlog);
}

void Exchange::Post(std::function<void()> work) { boost::asio::post(*io_, std::move(work)); }

void Exchange::Gone() {
  if (gone_ || complete_) return;
  gone_ = true;
  on_backlog_ = nullptr;
  unsent_ = std::string();
  taken_ = 0;
  Count();
  wake_.cancel();
  if (on_gone_) std::exchange(on_gone_, nullptr)();
}

void Exchange::Complete() {
  complete_ = true;
  on_gone_ = nullptr;
  on_backlog_ = nullptr;
}

std::string Exchange::TakeUnsent() {
  taken_ = unsent_.size();
  return std::exchange(unsent_, std::string());
}

void Exchange::Sent() {
  taken_ = 0;
  if (unsent_.empty()) longest_ = 0;
  Count();
}

void Exchange::Count() {
  const size_t ours = unsent_.size() + taken_;
  *options_.together += ours - counted_;  // modulo 2^64
  const bool grown = ours > counted_;
  counted_ = ours;
  if (grown && ours > kSmallUnsent && *options_.together > options_.max_together) return Drop();
  const bool full = ours > (full_ ? max_backlog_ / 4 : max_backlog_ + longest_);
  if (on_backlog_ && std::exchange(full_, full) != full) on_backlog_(full);
}

void Exchange::Drop() {
  Gone();
  if (options_.drop) options_.drop();
}

}  // namespace tokamak
