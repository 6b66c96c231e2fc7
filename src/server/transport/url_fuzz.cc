// Reads bytes as a URL, and as a redirect from one. What is read has one reading: written out, it
// is read as the same URL, and its host is what the system's functions take for an address, or a
// name of letters.
#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/transport/url.h"

namespace {

using tokamak::Url;

void Check(const Url& url) {
  const auto again = tokamak::ParseUrl(url.ToString());
  if (!again.ok() || again->host != url.host || again->port != url.port ||
      again->target != url.target || again->tls != url.tls) {
    std::abort();
  }
  if (url.ToString().find_first_of("@\\ \r\n\t", 0) < url.ToString().find('/', 8)) std::abort();
  // inet_aton also takes octal, hexadecimal and shorter forms.
  in_addr loose, strict;
  if (::inet_aton(url.host.c_str(), &loose) != 0 &&
      (::inet_pton(AF_INET, url.host.c_str(), &strict) != 1 || loose.s_addr != strict.s_addr)) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto url = tokamak::ParseUrl(text);
  if (url.ok()) Check(*url);
  if (!url.ok() && url.status().message().empty()) std::abort();
  const Url base = {.host = "a.example", .port = "80", .target = "/b?c", .default_port = true};
  const auto redirect = tokamak::ResolveRedirect(base, text);
  if (redirect.ok()) Check(*redirect);
  return 0;
}
