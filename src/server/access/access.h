// Access control: decides from a request's head whether it is allowed, and adds the headers that
// tell browsers what they may do with the answer.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/access/api_keys.h"
#include "server/transport/http.h"
#include "tokamak/status.h"

namespace tokamak {

// Lets a page of ours run its own scripts and talk to this server, and nothing else.
inline constexpr std::string_view kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'";

// The rules, in the order in which they are applied:
// 1. Host: where only this machine can connect, the Host header must name this machine, so that a
//    page whose name resolves to 127.0.0.1 cannot use the server (DNS rebinding). More names are
//    allowed by `allowed_hosts`; when there are any, they hold for every address.
// 2. CORS: a preflight request of an allowed origin is answered.
// 3. Keys: without one of the keys, only public paths.
// 4. Origin: what browsers send for a page of another origin is refused, unless that is allowed.
//
// Owner: the I/O thread.
class Access {
 public:
  struct Options {
    bool loopback = true;                         // only this machine can connect
    bool insecure = false;                        // the operator accepts what would be refused
    std::string api_key_file = {};                // empty: no key is asked for
    std::vector<std::string> allowed_hosts = {};  // names or addresses, without ports
    std::vector<std::string> cors_origins = {};   // "https://example.org", or "*"
    // Paths that need no key and may be asked for from any page. Null: none.
    std::function<bool(std::string_view path)> is_public = {};
  };
  // Reads the keys. kInvalidArgument names the flag at fault; "*" among the origins needs keys.
  static Result<Access> Create(Options options);

  // Reads the keys again; the old ones stay after an error.
  Status ReloadKeys();
  bool has_keys() const { return !keys_.empty(); }

  // An answer for whom the rules refuse, and for preflight requests.
  std::optional<HttpResponse> Check(const HttpRequest& request) const;
  // Returns the client of a request: by its key, or without keys by its address (in IPv6 by its
  // /64 network, which is what customers get).
  Client Identify(const HttpRequest& request) const;
  // Adds to an answer what keeps browsers from misusing it, and CORS headers where they are due.
  // Headers that the answer has already stay as they are.
  void Decorate(const HttpRequest& request, HttpResponse& response) const;

 private:
  explicit Access(Options options) : options_(std::move(options)) {}

  bool HostAllowed(const HttpRequest& request) const;
  bool OriginAllowed(std::string_view origin) const;
  HttpResponse Preflight(const HttpRequest& request) const;

  Options options_;
  ApiKeys keys_;
};

}  // namespace tokamak
