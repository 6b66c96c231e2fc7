#include "server/transport/url.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace tokamak {
namespace {

constexpr size_t kMaxUrlBytes = 8192;
constexpr size_t kMaxHostBytes = 253;
constexpr size_t kMaxLabelBytes = 63;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// "127" or "0x7f": other programs may read the host as an IPv4 address in an unusual form.
bool IsNumber(std::string_view label) {
  const std::string lower = Lower(label);
  return std::all_of(label.begin(), label.end(), IsDigit) ||
         (lower.starts_with("0x") &&
          lower.find_first_not_of("0123456789abcdef", 2) == std::string::npos);
}

bool IsIpv4(const std::string& host) {
  in_addr address;
  char text[INET_ADDRSTRLEN] = "";
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 &&
         ::inet_ntop(AF_INET, &address, text, sizeof(text)) != nullptr && host == text;
}

// Returns an IPv6 address in its shortest form, in which each has one.
std::optional<std::string> ShortIpv6(const std::string& host) {
  in6_addr address;
  char text[INET6_ADDRSTRLEN] = "";
  if (::inet_pton(AF_INET6, host.c_str(), &address) != 1 ||
      ::inet_ntop(AF_INET6, &address, text, sizeof(text)) == nullptr) {
    return std::nullopt;
  }
  return text;
}

Status CheckName(const std::string& host) {
  if (host.empty()) return InvalidArgument("has no host");
  if (host.size() > kMaxHostBytes) return InvalidArgument("has a host that is too long");
  for (const char c : host) {
    if (IsDigit(c) || IsLetter(c) || c == '.' || c == '-' || c == '_') continue;
    return InvalidArgument(
        "has a host with other characters than letters, digits, '.', '-' and '_' (other alphabets "
        "are written as xn--...)");
  }
  const std::vector<std::string_view> labels = Split(host, '.');
  for (const std::string_view label : labels) {
    if (label.empty() || label.size() > kMaxLabelBytes) {
      return InvalidArgument("has a host with an empty or too long label between its dots");
    }
  }
  if (IsNumber(labels.back()) && !IsIpv4(host)) {
    return InvalidArgument(
        "has a host that ends with a number but is not an IPv4 address of four decimal numbers");
  }
  return Status();
}

// Reads HOST[:PORT] and sets host, port and default_port.
Status ReadAuthority(std::string_view text, Url& url) {
  if (text.find('@') != text.npos) return InvalidArgument("has a user before its host");
  std::string_view port;
  const bool brackets = text.starts_with('[');
  const size_t end = brackets ? text.find(']') : text.find(':');
  if (brackets) {
    if (end == text.npos) return InvalidArgument("has no ']' after its host");
    const std::optional<std::string> host = ShortIpv6(std::string(text.substr(1, end - 1)));
    if (!host) return InvalidArgument("has no IPv6 address in its brackets");
    url.host = *host;
    port = text.substr(end + 1);
  } else {
    url.host = Lower(text.substr(0, end));
    RETURN_IF_ERROR(CheckName(url.host));
    if (end != text.npos) port = text.substr(end);
  }
  const std::string_view usual = url.tls ? "443" : "80";
  url.port = usual;
  if (!port.empty()) {
    const auto number = ParseNumber<uint16_t>(port.substr(1));
    if (!port.starts_with(':') || !number || *number == 0) {
      return InvalidArgument("has a port that is not a number from 1 to 65535");
    }
    url.port = std::to_string(*number);
  }
  url.default_port = url.port == usual;
  return Status();
}

}  // namespace

std::string Url::authority() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + (default_port ? "" : ":" + port);
}

std::string Url::ToString() const { return (tls ? "https://" : "http://") + authority() + target; }

Result<Url> ParseUrl(std::string_view text) {
  if (text.size() > kMaxUrlBytes) {
    return InvalidArgument("is longer than {} bytes", kMaxUrlBytes);
  }
  for (const char c : text) {
    if (c <= ' ' || c > '~' || c == '\\' || c == '<' || c == '>' || c == '"') {
      return InvalidArgument(
          "has a character that must be escaped (white space, a quotation mark, '<', '>', a "
          "backslash, or one beyond ASCII)");
    }
  }
  constexpr std::string_view kPlain = "http://", kTls = "https://";
  Url url;
  url.tls = EqualIgnoringCase(text.substr(0, kTls.size()), kTls);
  if (!url.tls && !EqualIgnoringCase(text.substr(0, kPlain.size()), kPlain)) {
    return InvalidArgument("does not begin with http:// or https://");
  }
  text.remove_prefix(url.tls ? kTls.size() : kPlain.size());
  text = text.substr(0, text.find('#'));
  const size_t end = std::min(text.find_first_of("/?"), text.size());
  RETURN_IF_ERROR(ReadAuthority(text.substr(0, end), url));
  url.target = text.substr(end);
  if (!url.target.starts_with('/')) url.target = "/" + url.target;
  return url;
}

Result<Url> ResolveRedirect(const Url& base, std::string_view location) {
  const size_t colon = location.find(':');
  const bool absolute = colon != location.npos && location.find_first_of("/?#") > colon;
  std::string text(location);
  if (absolute) {
    // Has a scheme.
  } else if (location.starts_with("//")) {
    text = (base.tls ? "https:" : "http:") + text;
  } else if (location.starts_with('/')) {
    text = (base.tls ? "https://" : "http://") + base.authority() + text;
  } else {
    const std::string path = base.target.substr(0, base.target.find('?'));
    const std::string folder = path.substr(0, path.rfind('/') + 1);
    text = (base.tls ? "https://" : "http://") + base.authority() +
           (location.starts_with('?') ? path : folder) + text;
  }
  return ParseUrl(text);
}

}  // namespace tokamak
