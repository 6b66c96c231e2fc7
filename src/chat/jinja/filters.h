// All filters, by what they give. FindFilter (runtime.h) looks in both.
#pragma once

#include "chat/jinja/runtime.h"

namespace tokamak::jinja {

std::span<const Named<Filter>> TextFilters();
std::span<const Named<Filter>> ListFilters();

}  // namespace tokamak::jinja
