// All filters, by the type of their results. FindFilter (runtime.h) searches both lists.
#pragma once

#include "chat/jinja/runtime.h"

namespace tokamak::jinja {

std::span<const Named<Filter>> TextFilters();
std::span<const Named<Filter>> ListFilters();

}  // namespace tokamak::jinja
