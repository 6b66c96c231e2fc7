// A blocking HTTP client over one socket, for tests; it sends exactly the bytes it is given.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tokamak {

class HttpClient {
 public:
  struct Response {
    int status = 0;  // 0: the connection ended without an answer
    std::string headers;
    std::string body;  // chunks joined
  };

  explicit HttpClient(uint16_t port);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool connected() const { return fd_ >= 0; }
  bool Send(std::string_view bytes);
  // Reads one whole response; what follows it stays for the next call.
  Response Receive();
  // Reads until `text` has arrived (true) or the connection ends.
  bool ReceiveUntil(std::string_view text);
  // As ReceiveUntil, and drops everything up to the end of `text`.
  bool SkipPast(std::string_view text);
  // True when the server ended the connection and nothing is left to read.
  bool AtEnd();
  // Says that nothing more comes; answers can still be read.
  void FinishSending();
  void Close();

  // Sends a POST and does not wait for the answer.
  bool SendPost(std::string_view path, std::string_view body, std::string_view headers = "");
  Response Get(std::string_view path, std::string_view headers = "");
  Response Post(std::string_view path, std::string_view body, std::string_view headers = "");

 private:
  bool Fill();  // reads some bytes; false at the end

  int fd_ = -1;
  std::string buffer_;
};

}  // namespace tokamak
