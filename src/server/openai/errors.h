// From a Status to what an HTTP client gets.
#pragma once

#include <string>
#include <string_view>

#include "server/transport/http.h"
#include "tokamak/status.h"

namespace tokamak {

// The HTTP status and OpenAI's error object; a JSON path at the start of the message goes to
// `param`. kResourceExhausted is a request that can never run (400), kUnavailable one that may run
// later (503).
HttpResponse ErrorResponse(const Status& status);
// ErrorResponse for a server that works but has too much to do: kUnavailable becomes 429, and
// Retry-After tells clients when to try again.
HttpResponse BusyResponse(const Status& status);
// For a request that has no answer because the server ends.
HttpResponse ShuttingDownResponse();
// An error of HTTP itself or of authentication, by its number.
HttpResponse ErrorResponse(int http_status, std::string_view message, std::string_view code = "");

}  // namespace tokamak
