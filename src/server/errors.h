// Errors as responses. All of this server's errors have the shape of OpenAI's: clients of any path
// can read them with one piece of code.
#pragma once

#include <string>
#include <string_view>

#include "server/transport/http.h"
#include "tokamak/status.h"

namespace tokamak {

// The response to a request that failed with `status`. A JSON path at the start of the message
// becomes the error's `param`. A request that can never run (kResourceExhausted) gets 400, one that
// may run later (kUnavailable) 503.
HttpResponse ErrorResponse(const Status& status);
// ErrorResponse while the server works but has too much to do: kUnavailable becomes 429, and
// Retry-After tells clients when to try again.
HttpResponse BusyResponse(const Status& status);
// For a request that gets no answer because the server ends.
HttpResponse ShuttingDownResponse();
// For errors of HTTP itself and of access control. An empty `code` becomes null.
HttpResponse ErrorResponse(int http_status, std::string_view message, std::string_view code = "");

// Returns the JSON path at the start of a message: "top_p" for "top_p: must be ...". Empty if the
// message starts with none.
std::string LeadingPath(std::string_view message);

}  // namespace tokamak
