// The methods of each type. FindMethod (runtime.h) looks in all of them.
#pragma once

#include "chat/jinja/runtime.h"

namespace tokamak::jinja {

Method FindStringMethod(std::string_view name);

}  // namespace tokamak::jinja
