// What the server's API is, for programs.
#pragma once

#include <string_view>

namespace tokamak {

// openapi.json of this folder: an OpenAPI 3.1 document.
std::string_view OpenApiDocument();

}  // namespace tokamak
