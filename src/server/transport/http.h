// HTTP as handlers see it: without sockets or Beast. Used only on the I/O thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tokamak {

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // "/v1/models", without the query; as sent: %2e is not decoded
  std::string query;   // after the '?'
  std::string body;
  std::string client;                                             // a ClientNetwork: "10.0.0.7"
  std::vector<std::pair<std::string, std::string>> headers = {};  // all; names in lower case

  // Returns the value of the first header of this name (in lower case), or "".
  std::string_view Header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return value;
    }
    return "";
  }
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";  // empty: no body and no type (204)
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};  // further headers
};

// The response header that names the fields of a request that were ignored.
inline constexpr char kIgnoredFieldsHeader[] = "Tokamak-Ignored-Fields";

struct HttpLimits {
  size_t max_connections = 4096;             // more get 503 and are closed
  size_t max_connections_per_client = 2048;  // per address (IPv6: per /64); more get 429
  size_t max_header_bytes = 16 << 10;
  size_t max_body_bytes = 8 << 20;
  size_t max_arriving_bytes = 256 << 20;  // of all incomplete bodies; more get 503
  size_t max_unsent_bytes = 4 << 20;      // of one stream; beyond that its connection is closed
  // Unsent bytes of all responses; above this, connections with more than 64 KiB are ended.
  size_t max_unsent_together_bytes = 256 << 20;
  double idle_seconds = 75;    // between requests on a connection
  double header_seconds = 10;  // for a whole head once it has begun; for a TLS handshake
  double body_seconds = 60;    // for the whole body
  double write_seconds = 30;   // for the client to read some of what was written
};

}  // namespace tokamak
