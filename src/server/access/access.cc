#include "server/access/access.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "server/errors.h"

namespace tokamak {
namespace {

// Returns "[::1]" for "[::1]:8080" and "example.org" for "Example.org.:80"; "" if the port is not a
// number.
std::string HostName(std::string_view host) {
  size_t end = host.size();
  if (host.starts_with('[')) {
    end = host.find(']');
    if (end == std::string_view::npos) return "";
    ++end;
  } else {
    end = std::min(host.find(':'), host.size());
  }
  const std::string_view port = host.substr(end);
  if (!port.empty() && (port.front() != ':' || port.size() > 6 ||
                        port.find_first_not_of("0123456789", 1) != std::string_view::npos)) {
    return "";
  }
  host = host.substr(0, end);
  if (host.ends_with('.')) host.remove_suffix(1);
  return Lower(host);
}

// Names that always mean this machine, so no page of another machine can have them.
bool IsThisMachine(std::string_view name) {
  return name == "localhost" || name == "[::1]" ||
         (name.starts_with("127.") &&
          name.find_first_not_of("0123456789.") == std::string_view::npos);
}

// Returns whether this is an origin as browsers write it: a scheme, a host, perhaps a port.
bool IsOrigin(std::string_view origin) {
  const size_t scheme = origin.find("://");
  if (scheme == std::string_view::npos || scheme == 0) return false;
  const std::string_view host = origin.substr(scheme + 3);
  return !host.empty() && host.find_first_of("/?#@ \\\"',;*\r\n\t") == std::string_view::npos;
}

// Returns whether these names may be repeated in a response header.
bool IsHeaderList(std::string_view text) {
  return text.size() <= 1024 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                  c == '-' || c == '_' || c == ',' || c == ' ';
         });
}

// Returns whether a page is from this server itself. The scheme may differ, because a proxy may add
// TLS.
bool SameOrigin(std::string_view origin, std::string_view host) {
  const size_t scheme = origin.find("://");
  return scheme != std::string_view::npos && !host.empty() &&
         Lower(origin.substr(scheme + 3)) == Lower(host);
}

// Browsers say which page a request comes from; other clients do not.
bool FromElsewhere(const HttpRequest& request) {
  const std::string_view origin = request.Header("origin");
  if (!origin.empty()) return !SameOrigin(origin, request.Header("host"));
  const std::string_view site = request.Header("sec-fetch-site");
  return site == "cross-site" || site == "same-site";
}

}  // namespace

Result<Access> Access::Create(Options options) {
  for (std::string& host : options.allowed_hosts) {
    const std::string name = HostName(host);
    if (name.empty() || name != Lower(host)) {
      return InvalidArgument("allowed_hosts={}: must be a name or an address, without a port",
                             host);
    }
    host = name;
  }
  for (const std::string& origin : options.cors_origins) {
    if (origin == "*") {
      if (options.api_key_file.empty() && !options.insecure) {
        return InvalidArgument(
            "cors_origins=*: every page that a browser on this machine opens could use the server; "
            "set api_key_file, or insecure=true to allow it");
      }
    } else if (!IsOrigin(origin) || Lower(origin) != origin) {
      return InvalidArgument(
          "cors_origins={}: must be * or such as https://example.org, in lower case and without "
          "a path",
          origin);
    }
  }
  Access access(std::move(options));
  RETURN_IF_ERROR(access.ReloadKeys());
  return access;
}

Status Access::ReloadKeys() {
  if (options_.api_key_file.empty()) return Status();
  ASSIGN_OR_RETURN(keys_, ApiKeys::FromFile(options_.api_key_file));
  return Status();
}

bool Access::HostAllowed(const HttpRequest& request) const {
  if (!options_.loopback && options_.allowed_hosts.empty()) return true;
  const std::string_view host = request.Header("host");
  if (host.empty()) return true;  // HTTP/1.0, which no browser speaks
  const std::string name = HostName(host);
  if (options_.loopback && IsThisMachine(name)) return true;
  return std::find(options_.allowed_hosts.begin(), options_.allowed_hosts.end(), name) !=
         options_.allowed_hosts.end();
}

bool Access::OriginAllowed(std::string_view origin) const {
  return std::any_of(options_.cors_origins.begin(), options_.cors_origins.end(),
                     [&](const std::string& o) { return o == "*" || o == origin; });
}

HttpResponse Access::Preflight(const HttpRequest& request) const {
  HttpResponse response;
  response.status = 204;
  response.content_type = "";
  const std::string_view wanted = request.Header("access-control-request-headers");
  response.headers = {{"Access-Control-Allow-Methods", "GET, POST"},
                      {"Access-Control-Allow-Headers", wanted.empty() || !IsHeaderList(wanted)
                                                           ? "authorization, content-type"
                                                           : std::string(wanted)},
                      {"Access-Control-Max-Age", "600"}};
  // A page from the internet wants to use a server in the local network.
  if (request.Header("access-control-request-private-network") == "true") {
    response.headers.emplace_back("Access-Control-Allow-Private-Network", "true");
  }
  return response;
}

std::optional<HttpResponse> Access::Check(const HttpRequest& request) const {
  if (!HostAllowed(request)) {
    return ErrorResponse(403,
                         "the Host header names another host; --allowed-host NAME allows a name",
                         "host_not_allowed");
  }
  const std::string_view origin = request.Header("origin");
  const bool allowed_origin = !origin.empty() && OriginAllowed(origin);
  if (request.method == "OPTIONS" && allowed_origin &&
      !request.Header("access-control-request-method").empty()) {
    return Preflight(request);
  }
  if (options_.is_public && options_.is_public(request.path)) return std::nullopt;
  if (has_keys() && !keys_.Find(request.Header("authorization"))) {
    return ErrorResponse(401, "missing or unknown API key; send \"Authorization: Bearer <key>\"",
                         "invalid_api_key");
  }
  if (!allowed_origin && FromElsewhere(request)) {
    return ErrorResponse(403, "a page of another origin may not use this server (--cors-origin)",
                         "origin_not_allowed");
  }
  return std::nullopt;
}

Client Access::Identify(const HttpRequest& request) const {
  if (std::optional<Client> client = keys_.Find(request.Header("authorization"))) {
    return *std::move(client);
  }
  return {.name = "address " + request.client};
}

void Access::Decorate(const HttpRequest& request, HttpResponse& response) const {
  auto& headers = response.headers;
  const auto add = [&](std::string_view name, std::string_view value) {
    const bool there = std::any_of(headers.begin(), headers.end(),
                                   [&](const auto& header) { return header.first == name; });
    if (!there) headers.emplace_back(name, value);
  };
  add("Cache-Control", "no-store");
  add("X-Content-Type-Options", "nosniff");
  add("Referrer-Policy", "no-referrer");
  if (response.content_type.starts_with("text/html")) {
    add("Content-Security-Policy", kContentSecurityPolicy);
    add("X-Frame-Options", "DENY");
    add("Cross-Origin-Opener-Policy", "same-origin");
  }
  if (options_.cors_origins.empty()) {
    add("Cross-Origin-Resource-Policy", "same-origin");
    return;
  }
  headers.emplace_back("Vary", "Origin");
  const std::string_view origin = request.Header("origin");
  if (origin.empty() || !OriginAllowed(origin)) return;
  add("Access-Control-Allow-Origin", origin);
  add("Access-Control-Expose-Headers", fmt::format("Retry-After, {}", kIgnoredFieldsHeader));
}

}  // namespace tokamak
