#include "server/transport/request_head.h"

#include "base/text.h"

namespace tokamak {
namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr size_t kMaxMethod = 16;

bool IsAlphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

// RFC 9110, section 5.6.2.
bool IsToken(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  for (const char c : text) {
    if (!IsAlphanumeric(c) && kMarks.find(c) == std::string_view::npos) return false;
  }
  return !text.empty();
}

// Allows a name or an address, perhaps with a port, but no text that could be read as two hosts.
bool IsHost(std::string_view value) {
  for (const char c : value) {
    if (!IsAlphanumeric(c) && std::string_view(".-_:[]").find(c) == std::string_view::npos) {
      return false;
    }
  }
  return !value.empty();
}

// Fields that may come only once, because it would be open which one counts.
constexpr std::string_view kOnce[] = {"host",          "content-length", "transfer-encoding",
                                      "authorization", "content-type",   "origin",
                                      "expect",        "sec-fetch-site", "content-encoding"};
enum Once { kHost, kLength, kEncoding, kNumOnce = 9 };

std::string CheckLength(std::string_view value, HeadFraming& framing) {
  if (value.empty() || value.find_first_not_of(kDigits) != std::string_view::npos) {
    return "Content-Length must be digits";
  }
  framing.has_length = true;
  const auto length = ParseNumber<size_t>(value);
  if (!length) return "Content-Length is no number of bytes";
  framing.length = *length;
  return "";
}

// Checks one field. `counts` has the number of times that each of kOnce has come.
std::string CheckField(std::string_view line, int (&counts)[kNumOnce], HeadFraming& framing) {
  if (std::string error = FieldNameError(line); !error.empty()) return error;
  const size_t colon = line.find(':');
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = Trim(line.substr(colon + 1));
  for (int i = 0; i < kNumOnce; ++i) {
    if (!EqualIgnoringCase(name, kOnce[i])) continue;
    if (++counts[i] > 1) return "a header came twice: " + std::string(kOnce[i]);
    if (i == kHost && !IsHost(value)) return "the Host header names no host";
    if (i == kLength) return CheckLength(value, framing);
    if (i == kEncoding) {
      if (!EqualIgnoringCase(value, "chunked")) return "Transfer-Encoding must be chunked";
      framing.chunked = true;
    }
  }
  return "";
}

}  // namespace

std::string RequestLineError(std::string_view line) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) {
    return "the request line must be: METHOD /path HTTP/1.1";
  }
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!IsToken(method) || method.size() > kMaxMethod) return "the method is no method";
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return "only HTTP/1.1 and 1.0 are spoken";
  if (!target.starts_with('/')) return "the target must be a path that starts with /";
  for (const char c : target) {
    // Well-meaning clients never send '\' and '#': browsers encode both.
    if (c <= ' ' || c >= 0x7f || c == '\\' || c == '#' || c == '"' || c == '<' || c == '>') {
      return "the target holds a character that must be encoded";
    }
  }
  return "";
}

std::string FieldNameError(std::string_view line) {
  if (line.starts_with(' ') || line.starts_with('\t')) return "a header continues on a second line";
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !IsToken(line.substr(0, colon))) {
    return "a header has no proper name";
  }
  return "";
}

HeadFraming CheckHead(std::string_view head, size_t max_headers) {
  HeadFraming framing;
  int counts[kNumOnce] = {};
  size_t at = head.find("\r\n") + 2;
  const bool http10 = head.substr(0, at).ends_with("HTTP/1.0\r\n");
  for (size_t headers = 0; framing.error.empty(); ++headers) {
    const size_t end = head.find("\r\n", at);
    if (end == at || end == std::string_view::npos) break;
    framing.error = headers == max_headers ? "there are too many headers"
                                           : CheckField(head.substr(at, end - at), counts, framing);
    at = end + 2;
  }
  if (!framing.error.empty()) return framing;
  if (counts[kHost] == 0 && !http10) {
    framing.error = "the Host header is missing";
  } else if (framing.chunked && framing.has_length) {
    framing.error = "Content-Length and Transfer-Encoding contradict each other";
  } else if (framing.chunked && http10) {
    framing.error = "HTTP/1.0 knows no Transfer-Encoding";
  }
  return framing;
}

}  // namespace tokamak
