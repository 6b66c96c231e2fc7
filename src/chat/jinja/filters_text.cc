// Filters that return text or numbers.
#include <cmath>

#include "chat/jinja/arguments.h"
#include "chat/jinja/format.h"
#include "chat/jinja/unicode.h"

namespace tokamak::jinja {
namespace {

using TextFunction = std::string (*)(std::string_view);

// A filter without arguments that transforms a text.
template <TextFunction function>
Value TextFilter(Runtime& rt, const Value& input, CallArgs& args) {
  BindNothing(rt, "filter", args);
  const Value text = ToSoftStr(rt, input);
  if (rt.Failed() || !rt.budget().StepBytes(text.text().size() * 8)) return Value();
  return rt.String(function(text.text()), text.markup());
}

// Jinja's title case: words begin after spaces and opening brackets.
std::string TitleWords(std::string_view text) {
  const auto splits = [](char32_t c) {
    return IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const char32_t first = NextCodePoint(text, i);
    if (splits(first)) {
      out += text.substr(start, i - start);
      continue;
    }
    const size_t rest = i;
    while (i < text.size()) {
      size_t next = i;
      if (splits(NextCodePoint(text, next))) break;
      i = next;
    }
    out += ToUpper(text.substr(start, rest - start));
    out += ToLower(text.substr(rest, i - rest));
  }
  return out;
}

Value Trim(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [chars] = Bind(rt, "trim", args, {"chars"});
  const Value text = ToSoftStr(rt, input);
  return rt.Failed() ? Value() : StripText(rt, text, chars, kLeft | kRight);
}

Value Replace(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [old_value, new_value, count] = Bind(rt, "replace", args, {"old", "new", "count"}, 2);
  const Value text = ToStr(rt, input), from = ToStr(rt, old_value), to = ToStr(rt, new_value);
  const int64_t limit = IntOr(rt, count, -1);
  if (rt.Failed()) return Value();
  return ReplaceAll(rt, text, from.text(), to.text(), limit);
}

Value ToString(Runtime& rt, const Value& input, CallArgs& args) {
  BindNothing(rt, "string", args);
  return ToSoftStr(rt, input);
}

Value Safe(Runtime& rt, const Value& input, CallArgs& args) {
  BindNothing(rt, "safe", args);
  const Value text = ToStr(rt, input);
  if (rt.Failed()) return Value();
  return rt.String(text.text(), /*markup=*/true);
}

Value Escape(Runtime& rt, const Value& input, CallArgs& args) {
  BindNothing(rt, "escape", args);
  return EscapeHtml(rt, input);
}

Value ForceEscape(Runtime& rt, const Value& input, CallArgs& args) {
  BindNothing(rt, "forceescape", args);
  const Value text = ToStr(rt, input);
  return rt.Failed() ? Value() : EscapeHtml(rt, text);
}

Value Format(Runtime& rt, const Value& input, CallArgs& args) {
  const Value format = ToSoftStr(rt, input);
  if (rt.Failed()) return Value();
  if (args.named.empty()) {
    return FormatPercent(rt, format, rt.List(std::move(args.positional), Type::kTuple));
  }
  if (!args.positional.empty()) return rt.Fail("format takes a tuple or names, not both");
  auto dict = std::make_unique<DictObject>();
  for (auto& [name, value] : args.named) dict->Set(rt.String(name), std::move(value), &rt.budget());
  const Value values = MakeDict(std::move(dict), &rt.budget());
  return rt.Failed() ? Value() : FormatPercent(rt, format, values);
}

Value Indent(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [width, first, blank] = Bind(rt, "indent", args, {"width", "first", "blank"});
  const std::string_view text = TextOr(rt, input, "");
  Text margin(rt.budget());
  if (width.is_string()) {
    margin.Append(width.text());
  } else {
    margin.AppendTimes(" ", IntOr(rt, width, 4));
  }
  if (rt.Failed() || !rt.budget().StepBytes(text.size() * 4)) return Value();
  // Jinja adds a line end as well, so that a last empty line counts.
  const std::string extended = std::string(text) + "\n";
  const bool blank_too = TruthOr(blank, false);
  Text out(rt.budget());
  if (TruthOr(first, false) && !out.Append(margin.view())) return Value();
  std::string_view rest = extended;
  while (!rest.empty()) {
    const bool is_first = rest.size() == extended.size();
    const std::string_view line = TakeLine(&rest, /*keep_end=*/false);
    if (!is_first) {
      if (!out.Append('\n')) return Value();
      if ((blank_too || !line.empty()) && !out.Append(margin.view())) return Value();
    }
    if (!out.Append(line)) return Value();
  }
  return rt.Take(out, input.markup());
}

Value Center(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [width_value] = Bind(rt, "center", args, {"width"});
  const Value text = ToSoftStr(rt, input);
  const int64_t width = IntOr(rt, width_value, 80);
  return rt.Failed() ? Value() : Pad(rt, text, width, " ", kLeft | kRight);
}

Value Truncate(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [length, kill, end_value, leeway] =
      Bind(rt, "truncate", args, {"length", "killwords", "end", "leeway"});
  const int64_t most = IntOr(rt, length, 255), more = IntOr(rt, leeway, 5);
  const std::string_view end = TextOr(rt, end_value, "..."), text = TextOr(rt, input, "");
  if (!rt.budget().StepBytes(end.size() + text.size())) return Value();
  const int64_t room = most - CountCodePoints(end);
  if (!rt.Failed() && (room < 0 || more < 0)) return rt.Fail("truncate: the length is too small");
  if (rt.Failed()) return Value();
  if (Length(rt, input) - most <= more) return input;
  std::string_view kept = text.substr(0, OffsetOf(text, room));
  if (!TruthOr(kill, false)) kept = kept.substr(0, std::min(kept.rfind(' '), kept.size()));
  Text out(rt.budget());
  out.Append(kept);
  out.Append(end);
  return rt.Take(out);
}

Value WordCount(Runtime& rt, const Value& input, CallArgs& args) {
  BindNothing(rt, "wordcount", args);
  const Value text = ToSoftStr(rt, input);
  if (rt.Failed() || !rt.budget().StepBytes(text.text().size() * 8)) return Value();
  int64_t words = 0;
  bool inside = false;
  for (size_t i = 0; i < text.text().size();) {
    const char32_t c = NextCodePoint(text.text(), i);
    const bool word = c == '_' || IsAlphabetic(c) || IsNumeric(c);
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value::Int(words);
}

Value UrlEncode(Runtime& rt, const Value& input, CallArgs& args) {
  BindNothing(rt, "urlencode", args);
  const Value text = ToStr(rt, input);
  if (rt.Failed()) return Value();
  Text out(rt.budget());
  for (const char c : text.text()) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~/").find(c) != std::string_view::npos;
    if (!(plain ? out.Append(c)
                : out.Append(fmt::format("%{:02X}", static_cast<unsigned char>(c))))) {
      return Value();
    }
  }
  return rt.Take(out);
}

Value ToInt(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [fallback, base_value] = Bind(rt, "int", args, {"default", "base"});
  const int64_t base = IntOr(rt, base_value, 10);
  if (rt.Failed()) return Value();
  const bool valid_base = base == 0 || (base >= 2 && base <= 36);
  if (input.is_integral()) return Value::Int(input.integer());
  if (input.is(Type::kBigInt)) return input;
  if (input.is_undefined()) return rt.FailWith(input.UndefinedMessage());
  std::optional<double> number;
  if (input.is_string()) {
    if (!rt.budget().StepBytes(input.text().size() * 4)) return Value();
    const auto whole = valid_base ? ParseInt(input.text(), static_cast<int>(base)) : std::nullopt;
    if (whole) return Value::Int(*whole);
    number = ParseFloat(input.text());
  } else if (input.is(Type::kFloat)) {
    number = input.number();
    if (std::isinf(*number)) return rt.Fail("cannot convert float infinity to integer");
  }
  if (number && std::fabs(*number) < 9.2e18) return Value::Int(static_cast<int64_t>(*number));
  if (number && std::isfinite(*number)) return rt.Fail("an integer does not fit in 64 bits");
  return fallback.is_missing() ? Value::Int(0) : fallback;
}

Value ToFloat(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [fallback] = Bind(rt, "float", args, {"default"});
  if (rt.Failed()) return Value();
  if (input.is_number()) return Value::Float(input.number());
  if (input.is_undefined()) return rt.FailWith(input.UndefinedMessage());
  if (input.is_string() || input.is(Type::kBigInt)) {
    if (!rt.budget().StepBytes(input.text().size() * 4)) return Value();
    if (const auto number = ParseFloat(input.text())) return Value::Float(*number);
  }
  return fallback.is_missing() ? Value::Float(0) : fallback;
}

Value Abs(Runtime& rt, const Value& input, CallArgs& args) {
  BindNothing(rt, "abs", args);
  if (input.is(Type::kFloat)) return Value::Float(std::fabs(input.number()));
  if (input.is_integral() && input.integer() >= 0) return Value::Int(input.integer());
  return Negate(rt, input);
}

// Python's rounding of a float: exact, halves to the even digit.
double RoundTo(double number, int64_t precision) {
  if (!std::isfinite(number) || precision > 330) return number;
  if (precision >= 0) {
    return std::strtod(FormatDouble(number, static_cast<int>(precision), 'f', false).c_str(),
                       nullptr);
  }
  if (precision < -330) return std::copysign(0.0, number);
  const double scale = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(number / scale) * scale;
}

Value Round(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [precision_value, method] = Bind(rt, "round", args, {"precision", "method"});
  const int64_t precision = IntOr(rt, precision_value, 0);
  const std::string_view how = TextOr(rt, method, "common");
  if (rt.Failed()) return Value();
  if (!input.is_number()) return rt.Fail("round: not a number");
  if (how == "common") {
    if (input.is_integral() && precision >= 0) return Value::Int(input.integer());
    const double rounded = RoundTo(input.number(), precision);
    if (!input.is_integral()) return Value::Float(rounded);
    if (std::fabs(rounded) > 9.2e18) return rt.Fail("an integer does not fit in 64 bits");
    return Value::Int(static_cast<int64_t>(rounded));
  }
  if (how != "ceil" && how != "floor") return rt.Fail("method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.number() * scale;
  return Value::Float((how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value ToJson(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [ensure_ascii, indent, separators, sort_keys] =
      Bind(rt, "tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = TruthOr(ensure_ascii, false);
  style.sort_keys = TruthOr(sort_keys, false);
  if (!indent.is_missing() && !indent.is_none()) {
    style.pretty = true;
    style.item_separator = ",";
    if (indent.is_string()) {
      style.indent = indent.text();
    } else {
      const int64_t width = IntOr(rt, indent, 0);
      if (width > 4096) return rt.Fail("tojson: the indent has more than 4096 spaces");
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
  }
  if (!separators.is_missing() && !separators.is_none()) {
    if (!separators.is_list_like() || separators.items().size() != 2) {
      return rt.Fail("tojson: separators must be two strings");
    }
    style.item_separator = TextOr(rt, separators.items()[0], "");
    style.key_separator = TextOr(rt, separators.items()[1], "");
  }
  Text out(rt.budget());
  if (rt.Failed() || !PrintJson(rt, input, style, out)) return Value();
  return rt.Take(out);
}

}  // namespace

std::span<const Named<Filter>> TextFilters() {
  static constexpr Named<Filter> kFilters[] = {
      {"abs", Abs},
      {"capitalize", TextFilter<Capitalize>},
      {"center", Center},
      {"e", Escape},
      {"escape", Escape},
      {"float", ToFloat},
      {"forceescape", ForceEscape},
      {"format", Format},
      {"indent", Indent},
      {"int", ToInt},
      {"lower", TextFilter<ToLower>},
      {"replace", Replace},
      {"round", Round},
      {"safe", Safe},
      {"string", ToString},
      {"title", TextFilter<TitleWords>},
      {"tojson", ToJson},
      {"trim", Trim},
      {"truncate", Truncate},
      {"upper", TextFilter<ToUpper>},
      {"urlencode", UrlEncode},
      {"wordcount", WordCount},
  };
  return kFilters;
}

}  // namespace tokamak::jinja
