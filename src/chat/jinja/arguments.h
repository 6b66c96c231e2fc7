// Reads the arguments of filters and methods.
#pragma once

#include <string_view>

#include "chat/jinja/operators.h"
#include "chat/jinja/print.h"

namespace tokamak::jinja {

// Returns an integer, or `fallback` if it is missing or None. Fails for other types.
inline int64_t IntOr(Runtime& rt, const Value& value, int64_t fallback) {
  if (value.is_missing() || value.is_none()) return fallback;
  if (value.is_integral()) return value.integer();
  rt.FailFor(value, "an integer is required, not {}", TypeName(value.type()));
  return fallback;
}

// Returns a string's text, or `fallback` if it is missing. Fails for other types.
inline std::string_view TextOr(Runtime& rt, const Value& value, std::string_view fallback) {
  if (value.is_missing()) return fallback;
  if (value.is_string()) return value.text();
  rt.FailFor(value, "a string is required, not {}", TypeName(value.type()));
  return "";
}

inline bool TruthOr(const Value& value, bool fallback) {
  return value.is_missing() ? fallback : Truth(value);
}

// The sides of a text at which a function works.
inline constexpr int kLeft = 1, kRight = 2;
// str.strip; missing or None `chars` are white space.
Value StripText(Runtime& rt, const Value& text, const Value& chars, int sides);
// str.center, str.rjust and str.ljust: puts `fill`, one character, at these sides.
Value Pad(Runtime& rt, const Value& text, int64_t width, std::string_view fill, int sides);
// str.replace; a `limit` of -1 replaces all.
Value ReplaceAll(Runtime& rt, const Value& text, std::string_view from, std::string_view to,
                 int64_t limit);
// Removes the first line of a text that is not empty and returns it, as str.splitlines would.
std::string_view TakeLine(std::string_view* text, bool keep_end);

}  // namespace tokamak::jinja
