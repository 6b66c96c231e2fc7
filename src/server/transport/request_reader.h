// HTTP/1.1 requests out of bytes: what is one, and what is refused. No sockets, no waiting.
//
// Stricter than HTTP asks a server to be: whatever two parsers could read in two ways is refused
// (RFC 9112, sections 2.2, 3, 5 and 6.3), so that a proxy in front never sees other requests than
// we do. Lines end with CRLF; no control characters, folded lines or spaces before a colon; exactly
// one Host (HTTP/1.0 may lack it); one Content-Length of digits or "Transfer-Encoding: chunked",
// never both; a target that is a path; HTTP/1.0 or 1.1.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "server/transport/chunked_body.h"
#include "server/transport/http.h"

namespace tokamak {

// Reads one request. Feed it until done() or refused(); then it is of no more use.
class RequestReader {
 public:
  static constexpr size_t kMaxHeaders = 100;

  RequestReader(size_t max_header_bytes, size_t max_body_bytes);

  // Reads from the front of `bytes` and says how many it took; the rest must come again, with more
  // behind it. Stops behind the head, and never takes a byte of the next request.
  size_t Feed(std::string_view bytes);

  bool head_done() const { return head_done_; }  // request() is whole but for its body
  bool done() const { return done_; }
  bool refused() const { return status_ != 0; }
  // What was wrong; once refused().
  int status() const { return status_; }
  const std::string& message() const { return message_; }

  // Whole once done(); before, what there is of it: from the request line on its method and target.
  HttpRequest& request() { return request_; }
  // Once head_done().
  bool keep_alive() const { return keep_alive_; }
  bool http11() const { return http11_; }  // so that chunks may be sent
  bool expects_continue() const { return expects_continue_; }
  bool has_body() const { return has_body_; }

 private:
  // The length of the head with its empty line; 0 when it is not all there, or refused.
  size_t FindHead(std::string_view bytes);
  void ReadRequestLine(std::string_view line);
  void ReadHead(std::string_view head);
  size_t ReadBody(std::string_view bytes);
  void Refuse(int status, std::string message);

  const size_t max_header_bytes_;
  const size_t max_body_bytes_;
  ChunkedBody chunks_;
  size_t body_left_ = 0;   // where the head gives its length
  bool begun_ = false;     // more than an empty line has come
  size_t scanned_ = 0;     // bytes of the head that FindHead has looked at
  size_t line_start_ = 0;  // of the line that scanned_ is in
  size_t lines_ = 0;       // before that line
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
