#include "server/testing/http_client.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>

namespace tokamak {

HttpClient::HttpClient(uint16_t port) {
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval patience{.tv_sec = 20,
                         .tv_usec = 0};  // a hang fails the test instead of blocking it
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) Close();
}

HttpClient::~HttpClient() { Close(); }

void HttpClient::FinishSending() { ::shutdown(fd_, SHUT_WR); }

void HttpClient::Close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool HttpClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool HttpClient::Fill() {
  char bytes[16384];
  const ssize_t got = ::recv(fd_, bytes, sizeof(bytes), 0);
  if (got <= 0) return false;
  buffer_.append(bytes, static_cast<size_t>(got));
  return true;
}

bool HttpClient::ReceiveUntil(std::string_view text) {
  while (buffer_.find(text) == std::string::npos) {
    if (!Fill()) return false;
  }
  return true;
}

bool HttpClient::SkipPast(std::string_view text) {
  if (!ReceiveUntil(text)) return false;
  buffer_.erase(0, buffer_.find(text) + text.size());
  return true;
}

bool HttpClient::AtEnd() { return buffer_.empty() && !Fill(); }

HttpClient::Response HttpClient::Receive() {
  Response response;
  if (!ReceiveUntil("\r\n\r\n")) return response;
  const size_t head = buffer_.find("\r\n\r\n") + 4;
  response.headers = buffer_.substr(0, head);
  buffer_.erase(0, head);
  response.status = std::atoi(response.headers.c_str() + 9);
  const size_t length = response.headers.find("Content-Length: ");
  if (length != std::string::npos) {
    const auto size = static_cast<size_t>(std::atol(response.headers.c_str() + length + 16));
    while (buffer_.size() < size && Fill()) {
    }
    response.body = buffer_.substr(0, size);
    buffer_.erase(0, size);
    return response;
  }
  for (;;) {  // chunked
    if (!ReceiveUntil("\r\n")) return response;
    const size_t line = buffer_.find("\r\n") + 2;
    const size_t size = std::strtoul(buffer_.c_str(), nullptr, 16);
    while (buffer_.size() < line + size + 2 && Fill()) {
    }
    response.body += buffer_.substr(line, size);
    buffer_.erase(0, line + size + 2);
    if (size == 0) return response;
  }
}

HttpClient::Response HttpClient::Get(std::string_view path, std::string_view headers) {
  Send(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, headers));
  return Receive();
}

bool HttpClient::SendPost(std::string_view path, std::string_view body, std::string_view headers) {
  return Send(
      fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n"
                  "Content-Type: application/json\r\n{}\r\n{}",
                  path, body.size(), headers, body));
}

HttpClient::Response HttpClient::Post(std::string_view path, std::string_view body,
                                      std::string_view headers) {
  SendPost(path, body, headers);
  return Receive();
}

}  // namespace tokamak
