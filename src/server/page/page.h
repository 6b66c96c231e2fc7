// The web page at `/`: static files without secrets, which anybody may load. Their requests to the
// API need a key if the API does.
#pragma once

#include <string_view>

#include "server/transport/http.h"

namespace tokamak {

// Returns whether a path is a file of the page.
bool IsPage(std::string_view path);
// Returns the response to a GET request of such a path.
HttpResponse PageResponse(const HttpRequest& request);

}  // namespace tokamak
