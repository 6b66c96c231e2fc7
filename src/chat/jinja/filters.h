// The filters, by what they give. FindFilter (runtime.h) looks in both.
#pragma once

#include "chat/jinja/runtime.h"

namespace tokamak::jinja {

Filter FindTextFilter(std::string_view name);
Filter FindListFilter(std::string_view name);

}  // namespace tokamak::jinja
