// Constructors for Status with fmt-style messages, and macros that return errors early.
#pragma once

#include <fmt/core.h>

#include "tokamak/status.h"

namespace tokamak {

template <typename... Args>
Status InvalidArgument(fmt::format_string<Args...> format, Args&&... args) {
  return Status(StatusCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status NotFound(fmt::format_string<Args...> format, Args&&... args) {
  return Status(StatusCode::kNotFound, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status DataLoss(fmt::format_string<Args...> format, Args&&... args) {
  return Status(StatusCode::kDataLoss, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status Unimplemented(fmt::format_string<Args...> format, Args&&... args) {
  return Status(StatusCode::kUnimplemented, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status ResourceExhausted(fmt::format_string<Args...> format, Args&&... args) {
  return Status(StatusCode::kResourceExhausted, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status Unavailable(fmt::format_string<Args...> format, Args&&... args) {
  return Status(StatusCode::kUnavailable, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status Internal(fmt::format_string<Args...> format, Args&&... args) {
  return Status(StatusCode::kInternal, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tokamak

#define TOKAMAK_CONCAT_INNER(a, b) a##b
#define TOKAMAK_CONCAT(a, b) TOKAMAK_CONCAT_INNER(a, b)

// Returns from the enclosing function if `expr` (a Status) is an error.
#define RETURN_IF_ERROR(expr)                                                                \
  do {                                                                                       \
    if (::tokamak::Status status_macro_ = (expr); !status_macro_.ok()) return status_macro_; \
  } while (false)

// ASSIGN_OR_RETURN(auto x, MakeX()): declares or assigns the value, or returns the error.
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_INNER(TOKAMAK_CONCAT(result_macro_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_INNER(result, lhs, expr) \
  auto result = (expr);                           \
  if (!result.ok()) return result.status();       \
  lhs = *std::move(result)
