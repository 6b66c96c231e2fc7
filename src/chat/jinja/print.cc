#include "chat/jinja/print.h"

#include <cmath>

#include "chat/jinja/ast.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/unicode.h"

namespace tokamak::jinja {
namespace {

bool PrintStringRepr(std::string_view text, Text& out) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string repr(1, quote);
  if (!out.budget().StepBytes(text.size() * 4)) return false;
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const auto plain = [quote](char c) { return c >= ' ' && c < 0x7F && c != quote && c != '\\'; };
    while (i < text.size() && plain(text[i])) ++i;
    if (i > start) {
      if (!out.Append(repr) || !out.Append(text.substr(start, i - start))) return false;
      repr.clear();
      continue;
    }
    const char32_t c = NextCodePoint(text, i);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      repr += '\\';
      repr += static_cast<char>(c);
    } else if (c == '\n') {
      repr += "\\n";
    } else if (c == '\r') {
      repr += "\\r";
    } else if (c == '\t') {
      repr += "\\t";
    } else if (IsPrintable(c)) {
      repr += text.substr(start, i - start);
    } else {
      const auto code = static_cast<uint32_t>(c);
      repr += c < 0x100     ? fmt::format("\\x{:02x}", code)
              : c < 0x10000 ? fmt::format("\\u{:04x}", code)
                            : fmt::format("\\U{:08x}", code);
    }
    if (repr.size() > 4096) {
      if (!out.Append(repr)) return false;
      repr.clear();
    }
  }
  repr += quote;
  return out.Append(repr);
}

bool PrintItems(Runtime& rt, const std::vector<Value>& items, std::string_view open,
                std::string_view close, Text& out) {
  if (!out.Append(open)) return false;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0 && !out.Append(", ")) return false;
    if (!PrintRepr(rt, items[i], out)) return false;
  }
  return out.Append(close);
}

bool PrintDict(Runtime& rt, const DictObject& dict, Text& out) {
  if (!out.Append('{')) return false;
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!first && !out.Append(", ")) return false;
    first = false;
    if (!PrintRepr(rt, key, out) || !out.Append(": ") || !PrintRepr(rt, value, out)) return false;
  }
  return out.Append('}');
}

bool PrintObject(Runtime& rt, const Value& value, Text& out) {
  switch (value.type()) {
    case Type::kRange: {
      const RangeObject& range = value.range();
      return out.Append(
          range.step == 1 ? fmt::format("range({}, {})", range.start, range.stop)
                          : fmt::format("range({}, {}, {})", range.start, range.stop, range.step));
    }
    case Type::kNamespace: {
      rt.Fail("a namespace cannot be printed");  // it may contain itself
      return false;
    }
    case Type::kCallable: {
      const MacroNode* macro = value.callable().macro;
      if (macro != nullptr && macro->name.empty()) return out.Append("<Macro anonymous>");
      if (macro != nullptr) return out.Append("<Macro '" + macro->name + "'>");
      return out.Append("<built-in method>");
    }
    case Type::kLoop:
      return out.Append(fmt::format("<LoopContext {}/{}>", value.loop().index0 + 1,
                                    LoopLength(rt, value.loop())));
    default:
      return out.Append(fmt::format("<{} object>", TypeName(value.type())));
  }
}

const char* Plural(Type type) {
  return type == Type::kDictKeys     ? "dict_keys(["
         : type == Type::kDictValues ? "dict_values(["
                                     : "dict_items([";
}

}  // namespace

std::string FloatRepr(double number) {
  if (std::isnan(number)) return "nan";
  // fmt chooses between digits and an exponent as Python does, but writes 1.0 as "1".
  std::string text = fmt::format("{}", number);
  if (std::isfinite(number) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

bool PrintRepr(Runtime& rt, const Value& value, Text& out) {
  if (!rt.budget().Step()) return false;
  switch (value.type()) {
    case Type::kNone:
      return out.Append("None");
    case Type::kBool:
      return out.Append(value.integer() != 0 ? "True" : "False");
    case Type::kInt:
      return out.Append(std::to_string(value.integer()));
    case Type::kFloat:
      return out.Append(FloatRepr(value.number()));
    case Type::kBigInt:
      return out.Append(value.text());
    case Type::kUndefined:
      return out.Append("Undefined");
    case Type::kString:
      if (!value.markup()) return PrintStringRepr(value.text(), out);
      return out.Append("Markup(") && PrintStringRepr(value.text(), out) && out.Append(')');
    case Type::kList:
      return PrintItems(rt, value.items(), "[", "]", out);
    case Type::kTuple:
      return PrintItems(rt, value.items(), "(", value.items().size() == 1 ? ",)" : ")", out);
    case Type::kDictKeys:
    case Type::kDictValues:
    case Type::kDictItems:
      return PrintItems(rt, value.items(), Plural(value.type()), "])", out);
    case Type::kDict:
      return PrintDict(rt, value.dict(), out);
    default:
      return PrintObject(rt, value, out);
  }
}

bool Print(Runtime& rt, const Value& value, Text& out) {
  if (value.is_string()) return out.Append(value.text());
  if (value.is_undefined()) return true;
  return PrintRepr(rt, value, out);
}

Value ToStr(Runtime& rt, const Value& value) {
  if (value.is_string() && !value.markup()) return value;
  Text out(rt.budget());
  Print(rt, value, out);
  return rt.Take(out);
}

Value ToSoftStr(Runtime& rt, const Value& value) {
  return value.is_string() ? value : ToStr(rt, value);
}

Value Repr(Runtime& rt, const Value& value) {
  Text out(rt.budget());
  PrintRepr(rt, value, out);
  return rt.Take(out);
}

Value EscapeHtml(Runtime& rt, const Value& value) {
  if (value.is_string() && value.markup()) return value;
  const Value text = ToStr(rt, value);
  if (rt.Failed()) return Value();
  Text out(rt.budget());
  for (const char c : text.text()) {
    const bool fine = c == '&'    ? out.Append("&amp;")
                      : c == '<'  ? out.Append("&lt;")
                      : c == '>'  ? out.Append("&gt;")
                      : c == '"'  ? out.Append("&#34;")
                      : c == '\'' ? out.Append("&#39;")
                                  : out.Append(c);
    if (!fine) return Value();
  }
  return rt.Take(out, /*markup=*/true);
}

}  // namespace tokamak::jinja
