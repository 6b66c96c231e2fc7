// Reads a body with "Transfer-Encoding: chunked" (RFC 9112, section 7.1), as strictly as
// RequestReader reads a head. The result does not depend on how the bytes are split when they
// arrive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tokamak {

class ChunkedBody {
 public:
  // Limits a line with a chunk's size and extensions, and all lines after the last chunk together.
  static constexpr size_t kMaxLine = 4096;

  explicit ChunkedBody(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Reads from the front of `bytes` and returns how many it took: all of them, unless the body ends
  // or is refused first.
  size_t Feed(std::string_view bytes);

  bool done() const { return part_ == Part::kEnd; }
  bool refused() const { return status_ != 0; }
  int status() const { return status_; }  // 400; 413 if longer than max_bytes
  const std::string& message() const { return message_; }
  std::string TakeBody() { return std::move(body_); }

 private:
  // A line includes its CRLF. kDataEnd is the CRLF after a chunk's data.
  enum class Part { kSizeLine, kData, kDataEnd, kTrailerLine, kEnd };

  void TakeLineByte(char c);
  void EndLine();
  void EndSizeLine();
  void Refuse(std::string_view what);

  const size_t max_bytes_;
  Part part_ = Part::kSizeLine;
  std::string line_;        // what arrived of it, without CRLF
  bool after_cr_ = false;   // the last byte of line_ was CR
  size_t line_bytes_ = 0;   // bytes that count towards kMaxLine
  uint64_t data_left_ = 0;  // missing bytes of the chunk
  std::string body_;
  int status_ = 0;
  std::string message_;
};

}  // namespace tokamak
