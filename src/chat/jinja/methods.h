// The methods of str. MethodsOf (runtime.h) returns those of any type.
#pragma once

#include "chat/jinja/runtime.h"

namespace tokamak::jinja {

std::span<const Named<Method>> StringMethods();

}  // namespace tokamak::jinja
