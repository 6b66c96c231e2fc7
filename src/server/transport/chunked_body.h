// The body of a request with "Transfer-Encoding: chunked" (RFC 9112, section 7.1), as strictly as
// RequestReader reads a head. What it is does not depend on how its bytes arrive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tokamak {

class ChunkedBody {
 public:
  // Of a chunk's size with its extensions, and of all lines behind the last chunk together.
  static constexpr size_t kMaxLine = 4096;

  explicit ChunkedBody(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Reads from the front of `bytes`: all of them unless the body ends, or is refused, before.
  // Returns how many it took.
  size_t Feed(std::string_view bytes);

  bool done() const { return part_ == Part::kEnd; }
  bool refused() const { return status_ != 0; }
  int status() const { return status_; }  // 400, or 413 for more than max_bytes
  const std::string& message() const { return message_; }
  std::string TakeBody() { return std::move(body_); }

 private:
  // A line stands for its CRLF too. kDataEnd is that of a chunk.
  enum class Part { kSizeLine, kData, kDataEnd, kTrailerLine, kEnd };

  void TakeLineByte(char c);
  void EndLine();
  void EndSizeLine();
  void Refuse(std::string_view what);

  const size_t max_bytes_;
  Part part_ = Part::kSizeLine;
  std::string line_;        // so far, without its CRLF
  bool after_cr_ = false;   // of the line
  size_t line_bytes_ = 0;   // that count towards kMaxLine
  uint64_t data_left_ = 0;  // of the chunk
  std::string body_;
  int status_ = 0;
  std::string message_;
};

}  // namespace tokamak
