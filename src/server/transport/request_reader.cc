#include "server/transport/request_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <utility>

#include "base/text.h"
#include "server/transport/request_head.h"

namespace tokamak {

namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

RequestReader::RequestReader(size_t max_header_bytes, size_t max_body_bytes)
    : max_header_bytes_(max_header_bytes),
      max_body_bytes_(max_body_bytes),
      chunks_(max_body_bytes) {}

size_t RequestReader::Feed(std::string_view bytes) {
  if (done_ || refused()) return 0;
  if (head_done_) return ReadBody(bytes);
  // A client may send an empty line after the previous request (RFC 9112, section 2.2).
  size_t skipped = 0;
  if (!begun_) {
    if (bytes.empty() || bytes == "\r") return 0;
    begun_ = true;
    if (bytes.starts_with("\r\n")) skipped = 2;
    bytes.remove_prefix(skipped);
  }
  const size_t head = FindHead(bytes);
  if (head == 0) return skipped;
  ReadHead(bytes.substr(0, head));
  return skipped + head;
}

// Refuses as early as possible, so that nobody waits for the end of something that is not HTTP.
size_t RequestReader::FindHead(std::string_view bytes) {
  for (; scanned_ < bytes.size(); ++scanned_) {
    if (scanned_ >= max_header_bytes_) {
      Refuse(431, "the headers are larger than this server accepts");
      return 0;
    }
    const char c = bytes[scanned_];
    if (c == '\n') {
      if (scanned_ == line_start_ || bytes[scanned_ - 1] != '\r') {
        Refuse(400, "malformed HTTP request: a line must end with CRLF");
        return 0;
      }
      const std::string_view line = bytes.substr(line_start_, scanned_ - 1 - line_start_);
      line_start_ = scanned_ + 1;
      if (++lines_ == 1) ReadRequestLine(line);
      if (refused()) return 0;
      if (line.empty()) return ++scanned_;
      continue;
    }
    const bool after_cr = scanned_ > line_start_ && bytes[scanned_ - 1] == '\r';
    const bool control = IsControl(c) && c != '\r';
    const bool foreign = lines_ == 0 && static_cast<unsigned char>(c) >= 0x80;
    if (control || after_cr || foreign) {
      Refuse(400, "malformed HTTP request: a control character in its head");
      return 0;
    }
  }
  return 0;
}

void RequestReader::ReadRequestLine(std::string_view line) {
  if (const std::string error = RequestLineError(line); !error.empty()) {
    return Refuse(400, "malformed HTTP request: " + error);
  }
  const size_t space = line.find(' ');
  request_.method = line.substr(0, space);
  const std::string_view target = line.substr(space + 1, line.rfind(' ') - space - 1);
  const size_t mark = std::min(target.find('?'), target.size());
  request_.path = target.substr(0, mark);
  if (mark < target.size()) request_.query = target.substr(mark + 1);
}

void RequestReader::ReadHead(std::string_view head) {
  const HeadFraming framing = CheckHead(head, kMaxHeaders);
  if (!framing.error.empty()) return Refuse(400, "malformed HTTP request: " + framing.error);
  http::request_parser<http::empty_body> parser;
  parser.header_limit(static_cast<uint32_t>(std::min<size_t>(head.size() + 1, UINT32_MAX)));
  parser.body_limit(boost::none);
  error_code error;
  const size_t taken = parser.put(boost::asio::const_buffer(head.data(), head.size()), error);
  if (error || taken != head.size() || !parser.is_header_done()) {
    return Refuse(400, "malformed HTTP request: " + error.message());
  }
  const auto& message = parser.get();
  for (const auto& field : message) {
    request_.headers.emplace_back(Lower(field.name_string()), std::string(field.value()));
  }
  keep_alive_ = message.keep_alive();
  http11_ = message.version() >= 11;
  chunked_ = framing.chunked;
  has_body_ = framing.chunked || framing.length > 0;
  const auto expect = message[http::field::expect];
  expects_continue_ = http11_ && has_body_ && beast::iequals(expect, "100-continue");
  if (!expect.empty() && !beast::iequals(expect, "100-continue")) {
    return Refuse(417, "the Expect header may only say 100-continue");
  }
  head_done_ = true;
  done_ = !has_body_;
  body_left_ = framing.length;
  // Comes last: the caller can then refuse the head for another reason, such as a missing key.
  if (body_left_ > max_body_bytes_) Refuse(413, kBodyTooLarge);
}

size_t RequestReader::ReadBody(std::string_view bytes) {
  if (!chunked_) {
    const size_t taken = std::min(body_left_, bytes.size());
    request_.body += bytes.substr(0, taken);
    body_left_ -= taken;
    done_ = body_left_ == 0;
    return taken;
  }
  const size_t taken = chunks_.Feed(bytes);
  done_ = chunks_.done();
  if (done_) request_.body = chunks_.TakeBody();
  if (chunks_.refused()) Refuse(chunks_.status(), chunks_.message());
  return taken;
}

void RequestReader::Refuse(int status, std::string message) {
  status_ = status;
  message_ = std::move(message);
}

}  // namespace tokamak
