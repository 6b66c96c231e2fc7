// The web page at `/`: static files that hold no secret, so that anyone may load them. What they
// ask the API for needs a key where the API does.
#pragma once

#include <string_view>

#include "server/transport/http.h"

namespace tokamak {

// Whether a path is that of a file of the page.
bool IsPage(std::string_view path);
// The answer to a GET of such a path.
HttpResponse PageResponse(const HttpRequest& request);

}  // namespace tokamak
