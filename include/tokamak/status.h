// Status and Result report every error that a file, a client or a network can cause.
//
// A message says what is wrong, where (file, tensor, offset, JSON path) and what to do about it.
// Programming errors end the process instead, through CHECK (base/check.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tokamak {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument,    // the caller's value is wrong; retrying does not help
  kNotFound,           // a file, tensor or model that does not exist
  kDataLoss,           // a malformed, truncated or inconsistent file or frame
  kUnimplemented,      // well-formed, but not supported by this build
  kResourceExhausted,  // does not fit: memory, blocks, queue, context
  kUnavailable,        // may work later: offline, overloaded, shutting down
  kCancelled,          // ended by its owner
  kDeadlineExceeded,   // ran out of time
  kInternal,           // a bug in tokamak: one request fails, the process goes on
};

// The code's name in messages, e.g. "invalid argument".
std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(StatusCode code, std::string message)
      : error_(code == StatusCode::kOk
                   ? nullptr
                   : std::make_shared<const Error>(Error{code, std::move(message)})) {}

  bool ok() const { return error_ == nullptr; }
  StatusCode code() const { return error_ ? error_->code : StatusCode::kOk; }
  std::string_view message() const {
    return error_ ? std::string_view(error_->message) : std::string_view();
  }
  // "invalid argument: <message>", or "ok".
  std::string ToString() const;
  // The same error with "context: " before its message; OK stays OK.
  Status WithContext(std::string_view context) const;

 private:
  struct Error {
    StatusCode code;
    std::string message;
  };
  std::shared_ptr<const Error> error_;  // null means OK
};

// A value, or the error that explains why there is none. An OK status becomes a kInternal error.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    if (status_.ok()) status_ = Status(StatusCode::kInternal, "Result made from an OK status");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }  // OK when there is a value

  // The value. Ends the process if there is none.
  T& value() & { return Checked(); }
  const T& value() const& { return const_cast<Result*>(this)->Checked(); }
  T&& value() && { return std::move(Checked()); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  T& Checked();

  Status status_;
  std::optional<T> value_;
};

namespace internal {
[[noreturn]] void DieOnBadResultAccess(const Status& status);
}  // namespace internal

template <typename T>
T& Result<T>::Checked() {
  if (!value_) internal::DieOnBadResultAccess(status_);
  return *value_;
}

}  // namespace tokamak
