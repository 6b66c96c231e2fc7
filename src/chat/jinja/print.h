// Values as text: Python's str and repr, and JSON as transformers' tojson writes it.
#pragma once

#include <string>
#include <string_view>

#include "chat/jinja/runtime.h"

namespace tokamak::jinja {

// Appends str(value) to `out`; false after an error.
bool Print(Runtime& rt, const Value& value, Text& out);
// str(value); a string loses its markup flag.
Value ToStr(Runtime& rt, const Value& value);
// Like ToStr, but a string keeps its markup flag.
Value ToSoftStr(Runtime& rt, const Value& value);
bool PrintRepr(Runtime& rt, const Value& value, Text& out);
Value Repr(Runtime& rt, const Value& value);
// repr of a float: the shortest digits that read back as the same number.
std::string FloatRepr(double number);

struct JsonStyle {
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool pretty = false;
  std::string indent;  // of one level, if pretty
  bool sort_keys = false;
  bool ensure_ascii = false;
};
bool PrintJson(Runtime& rt, const Value& value, const JsonStyle& style, Text& out);

// Escapes & < > " ' for HTML; leaves markup as it is.
Value EscapeHtml(Runtime& rt, const Value& value);

}  // namespace tokamak::jinja
