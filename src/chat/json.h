// JSON as values for templates. Keys keep their order, integers stay integers.
#pragma once

#include <string_view>

#include "base/json/json_value.h"
#include "chat/jinja/value.h"
#include "tokamak/status.h"

namespace tokamak {

jinja::Value ToTemplateValue(const JsonValue& json);

// kInvalidArgument, with the byte, for invalid JSON, and for more than 100 levels of nesting. If an
// object repeats a key, the last value counts.
Result<jinja::Value> ParseJson(std::string_view text);

}  // namespace tokamak
