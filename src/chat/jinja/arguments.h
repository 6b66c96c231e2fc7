// Reading the arguments of filters and methods.
#pragma once

#include <string_view>

#include "chat/jinja/operators.h"
#include "chat/jinja/print.h"

namespace tokamak::jinja {

// An integer; `fallback` where it is missing or None. Fails for other types.
inline int64_t IntOr(Runtime& rt, const Value& value, int64_t fallback) {
  if (value.is_missing() || value.is_none()) return fallback;
  if (value.is_integral()) return value.integer();
  if (value.is_undefined()) {
    rt.FailWith(value.UndefinedMessage());
  } else {
    rt.Fail("an integer is required, not {}", TypeName(value.type()));
  }
  return fallback;
}

// A string's text; empty where it is missing. Fails for other types.
inline std::string_view TextOr(Runtime& rt, const Value& value, std::string_view fallback) {
  if (value.is_missing()) return fallback;
  if (value.is_string()) return value.text();
  if (value.is_undefined()) {
    rt.FailWith(value.UndefinedMessage());
  } else {
    rt.Fail("a string is required, not {}", TypeName(value.type()));
  }
  return "";
}

inline bool TruthOr(const Value& value, bool fallback) {
  return value.is_missing() ? fallback : Truth(value);
}

// str.replace; `limit` -1: all of them.
Value ReplaceAll(Runtime& rt, const Value& text, std::string_view from, std::string_view to,
                 int64_t limit);
// Takes the first line off a text that is not empty, as str.splitlines does.
std::string_view TakeLine(std::string_view* text, bool keep_end);

}  // namespace tokamak::jinja
