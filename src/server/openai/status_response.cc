#include "server/openai/status_response.h"

namespace tokamak {

HttpResponse ErrorResponse(const Status& status) {
  const auto respond = [&](int http_status, std::string_view code) {
    return ErrorResponse(http_status, status.message(), code, LeadingPath(status.message()));
  };
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kDataLoss:
      return respond(400, "");
    case StatusCode::kUnimplemented:
      return respond(400, "unsupported");
    case StatusCode::kResourceExhausted:
      return respond(400, "context_length_exceeded");
    case StatusCode::kNotFound:
      return respond(404, "model_not_found");
    case StatusCode::kUnavailable:
    case StatusCode::kCancelled:
      return respond(503, "unavailable");
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kOk:
    case StatusCode::kInternal:
      break;
  }
  return respond(500, "internal_error");
}

std::string LeadingPath(std::string_view message) {
  const size_t end = message.find(": ");
  if (end == std::string_view::npos || end == 0) return "";
  for (const char c : message.substr(0, end)) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!word && c != '_' && c != '$' && c != '.' && c != '[' && c != ']') return "";
  }
  return std::string(message.substr(0, end));
}

}  // namespace tokamak
