// A blocking HTTP client over one socket, for tests. It sends exactly the given bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tokamak {

class HttpClient {
 public:
  struct Response {
    int status = 0;  // 0: the connection ended without a response
    std::string headers;
    std::string body;  // chunks joined
  };

  explicit HttpClient(uint16_t port);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool connected() const { return fd_ >= 0; }
  bool Send(std::string_view bytes);
  // Reads one whole response and keeps what follows it for the next call.
  Response Receive();
  // Reads until `text` has arrived, or the connection ends. Returns whether it arrived.
  bool ReceiveUntil(std::string_view text);
  // Like ReceiveUntil, but also drops everything up to the end of `text`.
  bool SkipPast(std::string_view text);
  // Returns whether the server has ended the connection and nothing is left to read.
  bool AtEnd();
  // Ends the sending direction; responses can still be read.
  void FinishSending();
  void Close();

  // Sends a POST request without waiting for the response.
  bool SendPost(std::string_view path, std::string_view body, std::string_view headers = "");
  Response Get(std::string_view path, std::string_view headers = "");
  Response Post(std::string_view path, std::string_view body, std::string_view headers = "");

 private:
  bool Fill();  // reads some bytes; false at the end of the connection

  int fd_ = -1;
  std::string buffer_;
};

}  // namespace tokamak
