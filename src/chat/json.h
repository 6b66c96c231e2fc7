// JSON to the values of templates: keys in their order, integers as they are.
#pragma once

#include <string_view>

#include "chat/jinja/value.h"
#include "tokamak/status.h"

namespace tokamak {

// kInvalidArgument with the byte where it is not JSON, and for more than 100 levels of nesting. The
// last one counts of equal keys in an object.
Result<jinja::Value> ParseJson(std::string_view text);

}  // namespace tokamak
