// Parses tokens into a program.
#pragma once

#include <memory>
#include <string_view>

#include "chat/jinja/ast.h"
#include "tokamak/status.h"

namespace tokamak::jinja {

// Errors are kInvalidArgument and begin with the line.
Result<std::unique_ptr<const Program>> ParseTemplate(std::string_view source);

}  // namespace tokamak::jinja
