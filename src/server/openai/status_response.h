// Statuses as OpenAI's error responses.
#pragma once

#include <string>
#include <string_view>

#include "server/errors.h"
#include "tokamak/status.h"

namespace tokamak {

// The response to a request that failed with `status`. A JSON path at the start of the message
// becomes the error's `param`. A request that can never run (kResourceExhausted) gets 400, one that
// may run later (kUnavailable) 503.
HttpResponse ErrorResponse(const Status& status);

// Returns the JSON path at the start of a message: "top_p" for "top_p: must be ...". Empty if the
// message starts with none.
std::string LeadingPath(std::string_view message);

}  // namespace tokamak
