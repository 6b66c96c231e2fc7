// The hosts that a server may fetch from.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/transport/url.h"
#include "tokamak/status.h"

namespace tokamak {

// A list of hosts. Immutable, so thread-safe.
class AllowedHosts {
 public:
  // Each of `hosts` is a name, an address (IPv6 in brackets) or "*" for all, perhaps with a port;
  // without one, http's and https's own ports are meant. The addresses of a name must be public
  // (IsPublicAddress) unless `allow_private`; an address that is listed itself may be any.
  // kInvalidArgument names an entry that is none of these.
  static Result<AllowedHosts> Parse(const std::vector<std::string>& hosts, bool allow_private);

  // kInvalidArgument if the list does not have the URL's host with its port.
  Status Check(const Url& url) const;
  // Whether a URL that passed Check may be fetched from this address of its host.
  bool Permits(const Url& url, const std::string& address) const;

 private:
  struct Entry {
    std::string host;  // or "*"
    std::string port;  // empty: the default of the scheme
  };
  const Entry* Find(const Url& url) const;

  std::vector<Entry> entries_;
  bool allow_private_ = false;
};

}  // namespace tokamak
