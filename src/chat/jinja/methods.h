// The methods of str. MethodsOf (runtime.h) has those of all types.
#pragma once

#include "chat/jinja/runtime.h"

namespace tokamak::jinja {

std::span<const Named<Method>> StringMethods();

}  // namespace tokamak::jinja
