// Access control: decides from a request's head whether it is allowed, and adds the headers that
// tell browsers what they may do with the response.
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

// Lets our own page run its scripts and talk to this server, and nothing else.
inline constexpr std::string_view kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'";

// The rules, in the order in which they are applied:
// 1. Host: where only this machine can connect, the Host header must name this machine, so that a
//    page whose name resolves to 127.0.0.1 cannot use the server (DNS rebinding). `allowed_hosts`
//    allows more names; if it has any, other names are refused on every address.
// 2. CORS: a preflight request of an allowed origin is answered.
// 3. Keys: without one of the keys, only public paths.
// 4. Origin: a browser's request for a page of another origin is refused, unless that is allowed.
//
// Owner: the I/O thread.
class Access {
 public:
  struct Options {
    bool loopback = true;                         // only this machine can connect
    bool insecure = false;                        // the operator accepts what is otherwise refused
    std::string api_key_file = {};                // empty: no key is needed
    std::vector<std::string> allowed_hosts = {};  // names or addresses, without ports
    std::vector<std::string> cors_origins = {};   // "https://example.org", or "*"
    // Returns whether a path needs no key and may be requested from any page. Null: no path is
    // public.
    std::function<bool(std::string_view path)> is_public = {};
  };
  // Reads the keys. kInvalidArgument names the flag at fault. The origin "*" needs keys.
  static Result<Access> Create(Options options);

  // Reads the keys again. After an error the old ones stay in use.
  Status ReloadKeys();
  bool has_keys() const { return !keys_.empty(); }

  // Returns the response to a request that the rules refuse, or to a preflight request. nullopt
  // lets the request pass.
  std::optional<HttpResponse> Check(const HttpRequest& request) const;
  // Returns the client that sent a request. It is named by its key, or without keys by its address
  // (in IPv6 by its /64 network, which is what providers give to one customer).
  Client Identify(const HttpRequest& request) const;
  // Adds the headers that keep browsers from misusing a response, and CORS headers where they are
  // due. Keeps headers that the response already has.
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
