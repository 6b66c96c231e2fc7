#include "chat/jinja/format.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/text.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/print.h"
#include "chat/jinja/unicode.h"

namespace tokamak::jinja {
namespace {

constexpr int kMaxPrecision = 1000;
constexpr int64_t kMaxWidth = int64_t{1} << 32;

// The part between "%" or ":" and the type; both formats share it.
struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ =, or 0: the type's default
  char sign = '-';
  bool alternate = false;  // #
  char group = 0;          // , or _
  int64_t width = 0;
  int precision = -1;
  char type = 0;
};

// Reads digits at *at; false if the number exceeds `max`.
bool ReadNumber(std::string_view text, size_t* at, int64_t max, int64_t* out) {
  *out = 0;
  while (*at < text.size() && text[*at] >= '0' && text[*at] <= '9') {
    *out = *out * 10 + (text[(*at)++] - '0');
    if (*out > max) return false;
  }
  return true;
}

bool AppendPadded(const Spec& spec, std::string_view text, char default_align, Text& out) {
  const int64_t missing = spec.width - CountCodePoints(text);
  const char align = spec.align != 0 ? spec.align : default_align;
  if (missing <= 0) return out.Append(text);
  if (align == '=') {  // between the sign and the digits
    const bool has_sign = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ');
    return out.Append(text.substr(0, has_sign ? 1 : 0)) && out.AppendTimes(spec.fill, missing) &&
           out.Append(text.substr(has_sign ? 1 : 0));
  }
  const int64_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  return out.AppendTimes(spec.fill, left) && out.Append(text) &&
         out.AppendTimes(spec.fill, missing - left);
}

std::string Grouped(const std::string& digits, char group) {
  std::string out;
  size_t whole = 0;
  while (whole < digits.size() && digits[whole] >= '0' && digits[whole] <= '9') ++whole;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) out += group;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string WithSign(const Spec& spec, bool negative, std::string digits) {
  if (spec.group != 0) digits = Grouped(digits, spec.group);
  if (negative) return "-" + digits;
  return spec.sign == '-' ? digits : spec.sign + digits;
}

std::string IntDigits(const Spec& spec, uint64_t magnitude) {
  switch (spec.type) {
    case 'x':
      return fmt::format("{}{:x}", spec.alternate ? "0x" : "", magnitude);
    case 'X':
      return fmt::format("{}{:X}", spec.alternate ? "0X" : "", magnitude);
    case 'o':
      return fmt::format("{}{:o}", spec.alternate ? "0o" : "", magnitude);
    case 'b':
      return fmt::format("{}{:b}", spec.alternate ? "0b" : "", magnitude);
    default:
      return std::to_string(magnitude);
  }
}

bool AppendInt(const Spec& spec, int64_t number, Text& out) {
  const bool negative = number < 0;
  const uint64_t magnitude =
      negative ? uint64_t{0} - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  return AppendPadded(spec, WithSign(spec, negative, IntDigits(spec, magnitude)), '>', out);
}

bool AppendFloat(const Spec& spec, double number, Text& out) {
  const bool negative = std::signbit(number) && !std::isnan(number);
  const double magnitude = std::fabs(number);
  std::string digits;
  if (spec.type == 0 && spec.precision < 0) {
    digits = FloatRepr(magnitude);
  } else if (spec.type == '%') {
    digits = FormatDouble(magnitude * 100, spec.precision < 0 ? 6 : spec.precision, 'f', false);
    digits += '%';
  } else {
    const char type = spec.type == 0 || spec.type == 'n' ? 'g' : spec.type;
    digits = FormatDouble(magnitude, spec.precision < 0 ? 6 : spec.precision, type, spec.alternate);
  }
  return AppendPadded(spec, WithSign(spec, negative, std::move(digits)), '>', out);
}

// ---- % ----

struct PercentArguments {
  Runtime& rt;
  const Value& value;
  size_t next = 0;
  bool mapping_used = false;

  Value Next() {
    if (!value.is(Type::kTuple)) {
      if (next++ == 0) return value;
    } else if (next < value.items().size()) {
      return value.items()[next++];
    }
    return rt.Fail("not enough arguments for format string");
  }
  bool AllUsed() const {
    if (value.is(Type::kTuple)) return next >= value.items().size();
    return next > 0 || mapping_used || value.is_dict() || value.is_list_like();
  }
};

bool PercentNumber(Runtime& rt, const Spec& spec, const Value& value, Text& out) {
  const bool whole = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
  const bool based = spec.type == 'x' || spec.type == 'X' || spec.type == 'o';
  if (value.is(Type::kBigInt) && whole) return AppendPadded(spec, value.text(), '>', out);
  if (!value.is_number() || (based && value.is(Type::kFloat))) {
    rt.Fail("%{} format: a number is required, not {}", spec.type, TypeName(value.type()));
    return false;
  }
  if (!whole && !based) return AppendFloat(spec, value.number(), out);
  if (value.is(Type::kFloat)) {
    if (!(std::fabs(value.number()) < 9.2e18)) {
      rt.Fail("cannot convert float to an integer of 64 bits");
      return false;
    }
    return AppendInt(spec, static_cast<int64_t>(value.number()), out);
  }
  return AppendInt(spec, value.integer(), out);
}

bool PercentText(Runtime& rt, const Spec& spec, const Value& value, Text& out) {
  const Value text = spec.type == 's' ? ToStr(rt, value) : Repr(rt, value);
  if (rt.Failed()) return false;
  std::string_view view = text.text();
  if (spec.precision >= 0) view = view.substr(0, OffsetOf(view, spec.precision));
  return AppendPadded(spec, view, '>', out);
}

bool PercentItem(Runtime& rt, const Spec& spec, const Value& value, Text& out) {
  switch (spec.type) {
    case 's':
    case 'r':
    case 'a':
      return PercentText(rt, spec, value, out);
    case 'c':
      if (value.is_string() && Length(rt, value) == 1) {
        return AppendPadded(spec, value.text(), '>', out);
      }
      rt.Fail("%c requires a character");
      return false;
    default:
      if (std::string_view("diuxXofFeEgG").find(spec.type) != std::string_view::npos) {
        return PercentNumber(rt, spec, value, out);
      }
      rt.Fail("unsupported format character '{}'", spec.type);
      return false;
  }
}

// Reads flags, width, precision and type after "%" and "(name)".
bool ReadPercentSpec(PercentArguments& arguments, std::string_view format, size_t* at, Spec* spec) {
  bool zero = false, left = false;
  for (; *at < format.size(); ++*at) {
    const char c = format[*at];
    if (c == '-')
      left = true;
    else if (c == '0')
      zero = true;
    else if (c == '+')
      spec->sign = '+';
    else if (c == ' ')
      spec->sign = spec->sign == '+' ? '+' : ' ';
    else if (c == '#')
      spec->alternate = true;
    else
      break;
  }
  const auto number = [&](int64_t max, int64_t* out) {
    if (*at >= format.size() || format[*at] != '*') return ReadNumber(format, at, max, out);
    ++*at;
    const Value value = arguments.Next();
    if (!value.is_integral()) return false;
    *out = value.integer();
    return *out >= -max && *out <= max;
  };
  int64_t precision = 0;
  if (!number(kMaxWidth, &spec->width)) return false;
  if (*at < format.size() && format[*at] == '.') {
    ++*at;
    if (!number(kMaxPrecision, &precision)) return false;
    spec->precision = static_cast<int>(std::max<int64_t>(precision, 0));
  }
  while (*at < format.size() &&
         std::string_view("hlL").find(format[*at]) != std::string_view::npos) {
    ++*at;
  }
  if (*at >= format.size()) return false;
  spec->type = format[(*at)++];
  if (spec->width < 0) {
    left = true;
    spec->width = -spec->width;
  }
  const bool text = std::string_view("srac").find(spec->type) != std::string_view::npos;
  if (zero && !left && !text) {
    spec->fill = "0";
    spec->align = '=';
  } else {
    spec->align = left ? '<' : '>';
  }
  return true;
}

// Formats one "%...", whose '%' is before *at.
bool FormatOne(Runtime& rt, PercentArguments& arguments, std::string_view format, size_t* at,
               bool markup, Text& out) {
  std::optional<Value> named;
  if (*at < format.size() && format[*at] == '(') {
    const size_t end = format.find(')', *at);
    if (end == std::string_view::npos || !arguments.value.is_dict()) {
      rt.Fail("format requires a mapping");
      return false;
    }
    const std::string_view key = format.substr(*at + 1, end - *at - 1);
    const Value* found = arguments.value.dict().Find(key, &rt.budget());
    if (found == nullptr) {
      rt.Fail("the format's key '{}' does not exist", key);
      return false;
    }
    named = *found;
    arguments.mapping_used = true;
    *at = end + 1;
  }
  Spec spec;
  if (!ReadPercentSpec(arguments, format, at, &spec)) {
    rt.Fail("incomplete or unsupported format");
    return false;
  }
  if (spec.type == '%') return out.Append('%');
  Value value = named ? *named : arguments.Next();
  if (rt.Failed()) return false;
  if (markup && !value.is_number()) value = EscapeHtml(rt, value);
  return !rt.Failed() && PercentItem(rt, spec, value, out);
}

}  // namespace

std::string FormatDouble(double number, int precision, char type, bool alternate) {
  if (std::isnan(number)) return type == 'F' || type == 'E' || type == 'G' ? "NAN" : "nan";
  if (std::isinf(number)) return type == 'F' || type == 'E' || type == 'G' ? "INF" : "inf";
  precision = std::min(precision, kMaxPrecision);
  const std::string format = fmt::format("%{}.*{}", alternate ? "#" : "", type);
  const int size = std::snprintf(nullptr, 0, format.c_str(), precision, number);
  std::string out(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(out.data(), out.size(), format.c_str(), precision, number);
  out.resize(static_cast<size_t>(size));
  return out;
}

Value FormatPercent(Runtime& rt, const Value& format_value, const Value& argument) {
  const std::string_view format = format_value.text();
  if (!rt.budget().StepBytes(format.size())) return Value();
  PercentArguments arguments{rt, argument};
  Text out(rt.budget());
  for (size_t at = 0; at < format.size();) {
    const size_t percent = std::min(format.find('%', at), format.size());
    if (!out.Append(format.substr(at, percent - at))) return Value();
    at = percent + 1;
    if (percent == format.size()) break;
    if (!FormatOne(rt, arguments, format, &at, format_value.markup(), out)) return Value();
  }
  if (!arguments.AllUsed()) {
    return rt.Fail("not all arguments converted during string formatting");
  }
  return rt.Take(out, format_value.markup());
}

// ---- format() ----

namespace {

bool ReadSpec(std::string_view text, Spec* spec) {
  size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!text.empty()) {
    size_t second = 0;
    NextCodePoint(text, second);
    if (second < text.size() && is_align(text[second])) {
      spec->fill = std::string(text.substr(0, second));
      spec->align = text[second];
      at = second + 1;
    } else if (is_align(text[0])) {
      spec->align = text[0];
      at = 1;
    }
  }
  const auto peek = [&] { return at < text.size() ? text[at] : '\0'; };
  if (peek() == '+' || peek() == '-' || peek() == ' ') spec->sign = text[at++];
  if (peek() == '#') spec->alternate = ++at > 0;
  if (peek() == '0') {
    if (spec->align == 0) {
      spec->align = '=';
      spec->fill = "0";
    }
    ++at;
  }
  if (!ReadNumber(text, &at, kMaxWidth, &spec->width)) return false;
  if (peek() == ',' || peek() == '_') spec->group = text[at++];
  if (peek() == '.') {
    ++at;
    int64_t precision = 0;
    if (peek() < '0' || peek() > '9' || !ReadNumber(text, &at, kMaxPrecision, &precision)) {
      return false;
    }
    spec->precision = static_cast<int>(precision);
  }
  if (at < text.size()) spec->type = text[at++];
  return at == text.size();
}

bool FormatValue(Runtime& rt, const Value& value, std::string_view text, Text& out) {
  if (text.empty()) return Print(rt, value, out);
  Spec spec;
  const auto fail = [&] {
    rt.Fail("invalid format specifier '{}' for object of type '{}'", text, TypeName(value.type()));
    return false;
  };
  if (!ReadSpec(text, &spec)) return fail();
  if (value.is_string()) {
    if ((spec.type != 0 && spec.type != 's') || spec.align == '=') return fail();
    std::string_view view = value.text();
    if (spec.precision >= 0) view = view.substr(0, OffsetOf(view, spec.precision));
    return AppendPadded(spec, view, '<', out);
  }
  if (!value.is_number()) return fail();
  if (spec.type != 0 && std::string_view("eEfFgGn%").find(spec.type) != std::string_view::npos) {
    return AppendFloat(spec, value.number(), out);
  }
  if (value.is(Type::kFloat))
    return spec.type == 0 ? AppendFloat(spec, value.number(), out) : fail();
  if (spec.precision >= 0) return fail();
  if (spec.type == 'c') {
    if (value.integer() < 0 || value.integer() >= 0x110000) return fail();
    return AppendPadded(spec, ToUtf8(static_cast<char32_t>(value.integer())), '<', out);
  }
  if (spec.type != 0 && std::string_view("dbxXo").find(spec.type) == std::string_view::npos) {
    return fail();
  }
  return AppendInt(spec, value.integer(), out);
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& rt, const CallArgs& args, bool markup)
      : rt_(rt), args_(args), markup_(markup) {}

  bool Format(std::string_view format, int depth, Text& out) {
    for (size_t at = 0; at < format.size();) {
      const size_t brace = std::min(format.find_first_of("{}", at), format.size());
      if (!out.Append(format.substr(at, brace - at))) return false;
      at = brace;
      if (at == format.size()) break;
      if (at + 1 < format.size() && format[at + 1] == format[at]) {
        if (!out.Append(format[at])) return false;
        at += 2;
        continue;
      }
      if (format[at] == '}') return Fail("single '}' encountered in format string");
      const size_t end = FieldEnd(format, at + 1);
      if (end == std::string_view::npos) return Fail("expected '}' before end of string");
      if (!Field(format.substr(at + 1, end - at - 1), depth, out)) return false;
      at = end + 1;
    }
    return true;
  }

 private:
  bool Fail(const char* message) {
    rt_.FailWith(message);
    return false;
  }

  static size_t FieldEnd(std::string_view format, size_t at) {
    for (int open = 1; at < format.size(); ++at) {
      if (format[at] == '{') ++open;
      if (format[at] == '}' && --open == 0) return at;
    }
    return std::string_view::npos;
  }

  // "name!conversion:spec".
  bool Field(std::string_view field, int depth, Text& out) {
    const size_t name_end = std::min(field.find_first_of("!:"), field.size());
    Value value = Lookup(field.substr(0, name_end));
    if (rt_.Failed()) return false;
    std::string_view rest = field.substr(name_end);
    if (rest.starts_with('!')) {
      const char conversion = rest.size() > 1 ? rest[1] : '\0';
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':')) return Fail("bad conversion");
      if (conversion == 's')
        value = ToStr(rt_, value);
      else if (conversion == 'r' || conversion == 'a')
        value = Repr(rt_, value);
      else
        return Fail("unknown conversion in a format string");
      rest.remove_prefix(2);
    }
    if (rest.starts_with(':')) rest.remove_prefix(1);
    Text spec(rt_.budget());
    if (rest.find('{') != std::string_view::npos) {
      if (depth > 0) return Fail("a format specification nests too deeply");
      if (!Format(rest, depth + 1, spec)) return false;
    } else if (!spec.Append(rest)) {
      return false;
    }
    if (rt_.Failed()) return false;
    if (!markup_) return FormatValue(rt_, value, spec.view(), out);
    Text piece(rt_.budget());
    if (value.is_string() && value.markup()) return FormatValue(rt_, value, spec.view(), out);
    if (!FormatValue(rt_, value, spec.view(), piece)) return false;
    const Value escaped = EscapeHtml(rt_, rt_.Take(piece));
    return !rt_.Failed() && out.Append(escaped.text());
  }

  // Looks up "0", "name" or "" (the next one), each with optional ".attribute" and "[item]".
  Value Lookup(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    const std::string_view first = name.substr(0, end);
    Value value = Argument(first);
    std::string_view rest = name.substr(end);
    while (!rest.empty() && !rt_.Failed()) {
      if (rest[0] == '.') {
        const size_t stop = std::min(rest.find_first_of(".[", 1), rest.size());
        value = GetAttribute(rt_, value, rt_.String(rest.substr(1, stop - 1)));
        rest = rest.substr(stop);
        continue;
      }
      const size_t close = rest.find(']');
      if (rest[0] != '[' || close == std::string_view::npos) {
        return rt_.FailWith("malformed field in a format string");
      }
      const std::string_view key = rest.substr(1, close - 1);
      const std::optional<int64_t> number = ParseInt(key, 10);
      value = GetItem(rt_, value, number ? Value::Int(*number) : rt_.String(key));
      rest = rest.substr(close + 1);
    }
    if (value.is_undefined() && !rt_.Failed() && end < name.size()) {
      return rt_.FailWith(value.UndefinedMessage());
    }
    return value;
  }

  Value Argument(std::string_view name) {
    const bool digits = name.find_first_not_of("0123456789") == std::string_view::npos;
    if (digits) {
      const size_t index =
          name.empty() ? next_++ : static_cast<size_t>(ParseInt(name, 10).value_or(1 << 30));
      if (index < args_.positional.size()) return args_.positional[index];
      return rt_.FailWith("a format string uses more arguments than were given");
    }
    for (const auto& [key, value] : args_.named) {
      if (!rt_.budget().StepBytes(key.size() == name.size() ? name.size() : 0)) return Value();
      if (key == name) return value;
    }
    return rt_.Fail("the format's key '{}' does not exist", name);
  }

  Runtime& rt_;
  const CallArgs& args_;
  const bool markup_;
  size_t next_ = 0;
};

}  // namespace

Value FormatBraces(Runtime& rt, const Value& format, const CallArgs& args) {
  if (!rt.budget().StepBytes(format.text().size() * 4)) return Value();
  Text out(rt.budget());
  if (!BraceFormatter(rt, args, format.markup()).Format(format.text(), 0, out)) return Value();
  return rt.Take(out, format.markup());
}

namespace {

// Removes surrounding spaces, and underscores between digits; nullopt for other underscores.
std::optional<std::string> PlainNumber(std::string_view text) {
  text = StripRight(StripLeft(text));
  if (text.size() > 400) return std::nullopt;
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto word = [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    };
    if (i == 0 || i + 1 == text.size() || !word(text[i - 1]) || !word(text[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace

std::optional<int64_t> ParseInt(std::string_view text, int base) {
  const std::optional<std::string> plain = PlainNumber(text);
  if (!plain) return std::nullopt;
  std::string_view digits = *plain;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  const char kind = digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : 0;
  const int prefix_base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
  if (prefix_base != 0 && (base == prefix_base || base == 0)) {
    digits.remove_prefix(2);
    base = prefix_base;
  }
  if (digits.starts_with('-')) return std::nullopt;
  return ParseNumber<int64_t>((negative ? "-" : "") + std::string(digits), base == 0 ? 10 : base);
}

std::optional<double> ParseFloat(std::string_view text) {
  const std::optional<std::string> plain = PlainNumber(text);
  if (!plain || plain->empty()) return std::nullopt;
  std::string lower = ToLower(*plain);
  std::string_view word = lower;
  if (word[0] == '+' || word[0] == '-') word.remove_prefix(1);
  const bool special = word == "inf" || word == "infinity" || word == "nan";
  if (!special && word.find_first_not_of("0123456789.e+-") != std::string_view::npos) {
    return std::nullopt;
  }
  char* end = nullptr;
  const double number = std::strtod(lower.c_str(), &end);
  if (end != lower.c_str() + lower.size()) return std::nullopt;
  return number;
}

}  // namespace tokamak::jinja
