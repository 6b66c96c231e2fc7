#include "server/errors.h"

#include <nlohmann/json.hpp>

#include "server/json_text.h"

namespace tokamak {

HttpResponse ErrorResponse(int http_status, std::string_view message, std::string_view code,
                           std::string_view param) {
  using Json = nlohmann::ordered_json;
  const auto or_null = [](std::string_view text) {
    return text.empty() ? Json(nullptr) : Json(text);
  };
  const char* type = http_status == 401   ? "authentication_error"
                     : http_status == 403 ? "permission_error"
                     : http_status == 429 ? "rate_limit_error"
                     : http_status < 500  ? "invalid_request_error"
                                          : "server_error";
  HttpResponse response;
  response.status = http_status;
  response.body = DumpJson({{"error",
                             {{"message", message},
                              {"type", type},
                              {"param", or_null(param)},
                              {"code", or_null(code)}}}});
  if (http_status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (http_status == 429 || http_status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

HttpResponse ShuttingDownResponse() {
  return ErrorResponse(503, "the server is shutting down", "shutting_down");
}

}  // namespace tokamak
