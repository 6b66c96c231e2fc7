#include "tokamak/status.h"

#include <cstdio>
#include <cstdlib>

namespace tokamak {

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kNotFound:
      return "not found";
    case StatusCode::kDataLoss:
      return "malformed data";
    case StatusCode::kUnimplemented:
      return "not supported";
    case StatusCode::kResourceExhausted:
      return "does not fit";
    case StatusCode::kUnavailable:
      return "unavailable";
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kDeadlineExceeded:
      return "timed out";
    case StatusCode::kInternal:
      return "internal error";
  }
  return "unknown";
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  return std::string(StatusCodeName(code())) + ": " + error_->message;
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return *this;
  return Status(code(), std::string(context) + ": " + error_->message);
}

namespace internal {
void DieOnBadResultAccess(const Status& status) {
  std::fprintf(stderr, "Result accessed without a value: %s\n", status.ToString().c_str());
  std::abort();
}
}  // namespace internal

}  // namespace tokamak
