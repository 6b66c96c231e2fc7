// Takes the response to a request.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tokamak/status.h"

namespace tokamak {

struct ReceivedHead {
  int status = 0;
  std::string_view location;           // of a redirect
  std::optional<uint64_t> body_bytes;  // if the server says
};

// Gets the response, in the order of these methods, on the thread that runs the request.
class HttpReceiver {
 public:
  virtual ~HttpReceiver() = default;
  // The whole request was written to the connection. Called twice if a kept connection had ended,
  // because the request is then sent again over a new one.
  virtual void OnSent() {}
  // An error ends the request with it.
  virtual Status OnHead(const ReceivedHead& head) = 0;
  // A piece of the body. An error ends the request with it.
  virtual Status OnBody(std::string_view bytes) = 0;
  // Called once, last. OK if the whole response has come, whatever its status. kDeadlineExceeded if
  // it took too long, kUnavailable if the connection could not be made or ended early, kDataLoss if
  // the response is not HTTP.
  virtual void OnEnd(const Status& status) = 0;
};

}  // namespace tokamak
