// The description of the server's API for programs.
#pragma once

#include <string_view>

namespace tokamak {

// Returns openapi.json of this folder, an OpenAPI 3.1 document.
std::string_view OpenApiDocument();

}  // namespace tokamak
