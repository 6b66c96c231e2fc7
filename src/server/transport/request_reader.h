// Parses HTTP/1.1 requests from bytes, without sockets.
//
// Stricter than HTTP requires: refuses what two parsers could read in two ways (RFC 9112, sections
// 2.2, 3, 5 and 6.3), so that a proxy in front of the server always sees the same requests. Lines
// end with CRLF. There are no control characters, no folded lines and no spaces before a colon.
// There is exactly one Host (HTTP/1.0 may lack it), and one Content-Length of digits or
// "Transfer-Encoding: chunked", never both. The target is a path, the version 1.0 or 1.1.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "server/transport/chunked_body.h"
#include "server/transport/http.h"

namespace tokamak {

// Reads one request. Must be fed until done() or refused(), and not afterwards.
class RequestReader {
 public:
  static constexpr size_t kMaxHeaders = 100;

  RequestReader(size_t max_header_bytes, size_t max_body_bytes);

  // Reads from the front of `bytes` and returns how many it took. The rest must be passed again,
  // with more bytes after it. Stops after the head, and never takes a byte of the next request.
  size_t Feed(std::string_view bytes);

  bool head_done() const { return head_done_; }  // request() lacks only its body
  bool done() const { return done_; }
  bool refused() const { return status_ != 0; }
  // The reason for refusing. Requires refused().
  int status() const { return status_; }
  const std::string& message() const { return message_; }

  // Complete once done(). Before, it holds what has arrived: method and target after the request
  // line.
  HttpRequest& request() { return request_; }
  // These require head_done().
  bool keep_alive() const { return keep_alive_; }
  bool http11() const { return http11_; }  // chunks may be sent
  bool expects_continue() const { return expects_continue_; }
  bool has_body() const { return has_body_; }

 private:
  // Returns the length of the head with its empty line; 0 if it is incomplete or refused.
  size_t FindHead(std::string_view bytes);
  void ReadRequestLine(std::string_view line);
  void ReadHead(std::string_view head);
  size_t ReadBody(std::string_view bytes);
  void Refuse(int status, std::string message);

  const size_t max_header_bytes_;
  const size_t max_body_bytes_;
  ChunkedBody chunks_;
  size_t body_left_ = 0;   // missing bytes of the body, unless it is chunked
  bool begun_ = false;     // the request line has begun
  size_t scanned_ = 0;     // bytes of the head that FindHead has checked
  size_t line_start_ = 0;  // start of the line at scanned_
  size_t lines_ = 0;       // number of lines before that one
  HttpRequest request_;
  bool head_done_ = false;
  bool done_ = false;
  bool keep_alive_ = false;
  bool http11_ = false;
  bool expects_continue_ = false;
  bool has_body_ = false;
  bool chunked_ = false;
  int status_ = 0;
  std::string message_;
};

}  // namespace tokamak
