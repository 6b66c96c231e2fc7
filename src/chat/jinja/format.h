// Python's two ways of formatting strings.
#pragma once

#include <string_view>

#include "chat/jinja/runtime.h"

namespace tokamak::jinja {

// format % arguments: a tuple, a dictionary for %(name)s, or a single value.
Value FormatPercent(Runtime& rt, const Value& format, const Value& arguments);
// format.format(*args, **kwargs).
Value FormatBraces(Runtime& rt, const Value& format, const CallArgs& args);

// Parse numbers as Python's int() and float() do.
std::optional<int64_t> ParseInt(std::string_view text, int base);
std::optional<double> ParseFloat(std::string_view text);
// `number` with `precision` digits after the point; `type` is one of e f g E F G.
std::string FormatDouble(double number, int precision, char type, bool alternate);

}  // namespace tokamak::jinja
