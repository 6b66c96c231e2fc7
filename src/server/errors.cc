#include "server/errors.h"

#include <nlohmann/json.hpp>

#include "server/json_text.h"

namespace tokamak {
namespace {

struct Kind {
  int http_status;
  const char* type;
  const char* code;
};

Kind KindOf(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kDataLoss:
      return {400, "invalid_request_error", ""};
    case StatusCode::kUnimplemented:
      return {400, "invalid_request_error", "unsupported"};
    case StatusCode::kResourceExhausted:
      return {400, "invalid_request_error", "context_length_exceeded"};
    case StatusCode::kNotFound:
      return {404, "invalid_request_error", "model_not_found"};
    case StatusCode::kUnavailable:
    case StatusCode::kCancelled:
      return {503, "server_error", "unavailable"};
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kOk:
    case StatusCode::kInternal:
      break;
  }
  return {500, "server_error", "internal_error"};
}

// An empty `param` or `code` becomes null.
std::string FormatError(std::string_view type, std::string_view message, std::string_view param,
                        std::string_view code) {
  using Json = nlohmann::ordered_json;
  const auto or_null = [](std::string_view text) {
    return text.empty() ? Json(nullptr) : Json(text);
  };
  return DumpJson({{"error",
                    {{"message", message},
                     {"type", type},
                     {"param", or_null(param)},
                     {"code", or_null(code)}}}});
}

}  // namespace

HttpResponse ErrorResponse(const Status& status) {
  const Kind kind = KindOf(status.code());
  HttpResponse response;
  response.status = kind.http_status;
  response.body =
      FormatError(kind.type, status.message(), LeadingPath(status.message()), kind.code);
  if (kind.http_status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

HttpResponse BusyResponse(const Status& status) {
  HttpResponse response = ErrorResponse(status);
  if (status.code() != StatusCode::kUnavailable) return response;
  response.status = 429;
  response.body = FormatError("rate_limit_error", status.message(), "", "overloaded");
  return response;
}

HttpResponse ShuttingDownResponse() {
  return ErrorResponse(503, "the server is shutting down", "shutting_down");
}

HttpResponse ErrorResponse(int http_status, std::string_view message, std::string_view code) {
  HttpResponse response;
  response.status = http_status;
  const char* type = http_status == 401   ? "authentication_error"
                     : http_status == 403 ? "permission_error"
                     : http_status == 429 ? "rate_limit_error"
                     : http_status < 500  ? "invalid_request_error"
                                          : "server_error";
  response.body = FormatError(type, message, "", code);
  if (http_status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (http_status == 429 || http_status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

std::string LeadingPath(std::string_view message) {
  const size_t end = message.find(": ");
  if (end == std::string_view::npos || end == 0) return "";
  for (const char c : message.substr(0, end)) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!word && c != '_' && c != '.' && c != '[' && c != ']') return "";
  }
  return std::string(message.substr(0, end));
}

}  // namespace tokamak
