// Errors as responses, for the server's own (HTTP, access, health) and for those of its protocols.
// All have the shape of OpenAI's: clients of any path can read them with one piece of code.
#pragma once

#include <string_view>

#include "server/transport/http.h"

namespace tokamak {

// An empty `code` or `param` becomes null. With 429 and 503, Retry-After tells clients when to try
// again.
HttpResponse ErrorResponse(int http_status, std::string_view message, std::string_view code = "",
                           std::string_view param = "");
// For a request that gets no answer because the server ends.
HttpResponse ShuttingDownResponse();

}  // namespace tokamak
