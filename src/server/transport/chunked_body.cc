#include "server/transport/chunked_body.h"

#include <algorithm>
#include <charconv>

#include "server/transport/request_head.h"

namespace tokamak {

size_t ChunkedBody::Feed(std::string_view bytes) {
  size_t taken = 0;
  while (taken < bytes.size() && !done() && !refused()) {
    if (part_ != Part::kData) {
      TakeLineByte(bytes[taken++]);
      continue;
    }
    const auto part = static_cast<size_t>(std::min<uint64_t>(data_left_, bytes.size() - taken));
    body_ += bytes.substr(taken, part);
    taken += part;
    data_left_ -= part;
    if (data_left_ == 0) part_ = Part::kDataEnd;
  }
  return taken;
}

void ChunkedBody::TakeLineByte(char c) {
  if (++line_bytes_ > kMaxLine) return Refuse("a chunk's line is too long");
  if (after_cr_) {
    if (c != '\n') return Refuse("a chunk's line must end with CRLF");
    after_cr_ = false;
    return EndLine();
  }
  if (c == '\r') {
    after_cr_ = true;
  } else if (IsControl(c)) {
    Refuse("a control character in a chunk's line");
  } else if (part_ == Part::kDataEnd) {
    Refuse("a chunk is longer than it says");
  } else {
    line_ += c;
  }
}

void ChunkedBody::EndLine() {
  if (part_ == Part::kSizeLine) {
    EndSizeLine();
  } else if (part_ == Part::kDataEnd) {
    part_ = Part::kSizeLine;
    line_bytes_ = 0;
  } else if (line_.empty()) {
    part_ = Part::kEnd;
  } else if (const std::string error = FieldNameError(line_); !error.empty()) {
    Refuse(error);
  }
  line_.clear();
}

// Extensions are skipped, because none has a meaning here.
void ChunkedBody::EndSizeLine() {
  uint64_t size = 0;
  const char* const end = line_.data() + line_.size();
  const auto [next, error] = std::from_chars(line_.data(), end, size, 16);
  if (error != std::errc() || (next != end && *next != ';')) {
    return Refuse("a chunk must begin with its size in hexadecimal digits");
  }
  if (size > max_bytes_ - body_.size()) {
    status_ = 413;
    message_ = kBodyTooLarge;
    return;
  }
  line_bytes_ = 0;
  data_left_ = size;
  part_ = size == 0 ? Part::kTrailerLine : Part::kData;
}

void ChunkedBody::Refuse(std::string_view what) {
  status_ = 400;
  message_ = "malformed HTTP request: " + std::string(what);
}

}  // namespace tokamak
