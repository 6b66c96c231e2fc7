// http and https URLs.
#pragma once

#include <string>
#include <string_view>

#include "tokamak/status.h"

namespace tokamak {

struct Url {
  std::string host;  // in lower case; an IPv6 address without brackets, in its shortest form
  std::string port;
  std::string target = {};    // path and query, "/..."
  bool tls = false;           // https
  bool default_port = false;  // that of the scheme

  // "example.org", "[::1]:8080": what a Host header says.
  std::string authority() const;
  std::string ToString() const;
};

// Parses "http://HOST[:PORT][/PATH][?QUERY][#FRAGMENT]", or the same with https. The fragment is
// dropped. A URL that two programs could read differently is refused: with a user, a backslash,
// white space, characters beyond ASCII, escapes in the host, or a host whose last label is a number
// and that is not an IPv4 address of four decimal numbers. kInvalidArgument says what is wrong.
Result<Url> ParseUrl(std::string_view text);

// Returns the URL that a redirect from `base` to `location` leads to. kInvalidArgument as above.
Result<Url> ResolveRedirect(const Url& base, std::string_view location);

}  // namespace tokamak
