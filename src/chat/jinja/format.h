// Python's two ways to format strings.
#pragma once

#include <string_view>

#include "chat/jinja/runtime.h"

namespace tokamak::jinja {

// format % arguments: a tuple of them, a dictionary for %(name)s, or a single one.
Value FormatPercent(Runtime& rt, const Value& format, const Value& arguments);
// format.format(*args, **kwargs).
Value FormatBraces(Runtime& rt, const Value& format, const CallArgs& args);

// Numbers as Python's int() and float() read them from text.
std::optional<int64_t> ParseInt(std::string_view text, int base);
std::optional<double> ParseFloat(std::string_view text);
// `number` with `precision` digits behind the point; type is one of e f g (or capitals).
std::string FormatDouble(double number, int precision, char type, bool alternate);

}  // namespace tokamak::jinja
