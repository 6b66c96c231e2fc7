// The methods of str.
#include <algorithm>

#include "chat/jinja/arguments.h"
#include "chat/jinja/format.h"
#include "chat/jinja/search.h"
#include "chat/jinja/unicode.h"

namespace tokamak::jinja {
namespace {

using TextFunction = std::string (*)(std::string_view);

template <TextFunction function>
Value Convert(Runtime& rt, const Value& self, CallArgs& args) {
  BindNothing(rt, "str method", args);
  if (rt.Failed() || !rt.budget().StepBytes(self.text().size() * 8)) return Value();
  return rt.String(function(self.text()), self.markup());
}

template <int sides>
Value Strip(Runtime& rt, const Value& self, CallArgs& args) {
  const auto [chars] = Bind(rt, "strip", args, {"chars"});
  return StripText(rt, self, chars, sides);
}

// Collects pieces of a text. Each becomes a value at once, so memory is charged piece by piece.
class Pieces {
 public:
  Pieces(Runtime& rt, bool markup) : rt_(rt), markup_(markup) {}

  // False after an error.
  bool Add(std::string_view piece) {
    values_.push_back(rt_.String(piece, markup_));
    return !rt_.Failed();
  }
  Value Take() { return rt_.Failed() ? Value() : rt_.List(std::move(values_)); }
  // For pieces that were found from the end.
  Value TakeReversed() {
    std::reverse(values_.begin(), values_.end());
    return Take();
  }

 private:
  Runtime& rt_;
  const bool markup_;
  std::vector<Value> values_;
};

// Splits at runs of spaces, at most `limit` times.
Value SplitSpaces(std::string_view text, int64_t limit, Pieces pieces) {
  text = StripLeft(text);
  while (!text.empty()) {
    size_t end = limit-- == 0 ? text.size() : 0;
    while (end < text.size()) {
      size_t next = end;
      if (IsSpace(NextCodePoint(text, next))) break;
      end = next;
    }
    if (!pieces.Add(text.substr(0, end))) break;
    text = StripLeft(text.substr(end));
  }
  return pieces.Take();
}

Value SplitSpacesRight(std::string_view text, int64_t limit, Pieces pieces) {
  text = StripRight(text);
  while (!text.empty()) {
    size_t start = limit-- == 0 ? 0 : text.size();
    while (start > 0) {
      const size_t previous = PreviousCodePoint(text, start);
      size_t next = previous;
      if (IsSpace(NextCodePoint(text, next))) break;
      start = previous;
    }
    if (!pieces.Add(text.substr(start))) break;
    text = StripRight(text.substr(0, start));
  }
  return pieces.TakeReversed();
}

Value SplitAt(Runtime& rt, std::string_view text, std::string_view by, int64_t limit,
              Pieces pieces) {
  Matches<> matches(rt.budget(), text, by);
  size_t start = 0;
  while (limit-- != 0) {
    const size_t at = matches.Next();
    if (at == matches.kNone || !pieces.Add(text.substr(start, at - start))) break;
    start = at + by.size();
  }
  pieces.Add(text.substr(start));
  return pieces.Take();
}

Value SplitAtRight(Runtime& rt, std::string_view text, std::string_view by, int64_t limit,
                   Pieces pieces) {
  Matches<Backwards> matches(rt.budget(), text, by);
  size_t end = text.size();
  while (limit-- != 0) {
    const size_t at = matches.Next();
    if (at == matches.kNone) break;
    const size_t start = at + by.size();
    if (!pieces.Add(text.substr(start, end - start))) break;
    end = at;
  }
  pieces.Add(text.substr(0, end));
  return pieces.TakeReversed();
}

template <int side>
Value Split(Runtime& rt, const Value& self, CallArgs& args) {
  const auto [sep, maxsplit] = Bind(rt, "split", args, {"sep", "maxsplit"});
  const int64_t limit = IntOr(rt, maxsplit, -1);
  const bool spaces = sep.is_missing() || sep.is_none();
  const std::string_view by = spaces ? " " : TextOr(rt, sep, "");
  if (rt.Failed() || !rt.budget().StepBytes(self.text().size() * 4)) return Value();
  if (by.empty()) return rt.Fail("empty separator");
  const Pieces pieces(rt, self.markup());
  if (spaces) {
    return side == kLeft ? SplitSpaces(self.text(), limit, pieces)
                         : SplitSpacesRight(self.text(), limit, pieces);
  }
  return side == kLeft ? SplitAt(rt, self.text(), by, limit, pieces)
                       : SplitAtRight(rt, self.text(), by, limit, pieces);
}

Value SplitLinesMethod(Runtime& rt, const Value& self, CallArgs& args) {
  const auto [keep] = Bind(rt, "splitlines", args, {"keepends"});
  if (rt.Failed() || !rt.budget().StepBytes(self.text().size() * 4)) return Value();
  Pieces pieces(rt, self.markup());
  std::string_view rest = self.text();
  while (!rest.empty() && pieces.Add(TakeLine(&rest, TruthOr(keep, false)))) continue;
  return pieces.Take();
}

// The part of a text between start and end, as in str.find and str.startswith.
std::string_view Part(Runtime& rt, const Value& self, const Value& start, const Value& end,
                      int64_t* skipped) {
  *skipped = 0;
  if (start.is_missing() && end.is_missing()) return self.text();
  const int64_t length = Length(rt, self);
  const auto clamp = [&](const Value& value, int64_t fallback) {
    int64_t i = IntOr(rt, value, fallback);
    if (i < 0) i = i < -length ? 0 : i + length;
    return i;
  };
  const int64_t from = clamp(start, 0), to = std::min(clamp(end, length), length);
  *skipped = from;
  if (from > to) {
    *skipped = -1;
    return {};
  }
  return Characters(rt, self, from, to - from);
}

template <int side>
Value StartsWith(Runtime& rt, const Value& self, CallArgs& args) {
  const auto [affix, start, end] =
      Bind(rt, side == kLeft ? "startswith" : "endswith", args, {"prefix", "start", "end"}, 1);
  int64_t skipped = 0;
  const std::string_view text = Part(rt, self, start, end, &skipped);
  const auto matches = [&](const Value& value) {
    const std::string_view piece = TextOr(rt, value, "");
    if (!rt.budget().Step(BytesSteps(std::min(piece.size(), text.size())))) return false;
    return skipped >= 0 && (side == kLeft ? text.starts_with(piece) : text.ends_with(piece));
  };
  if (rt.Failed()) return Value();
  if (!affix.is(Type::kTuple)) return Value::Bool(matches(affix));
  for (const Value& item : affix.items()) {
    if (matches(item)) return Value::Bool(true);
    if (!rt.budget().Step()) return Value();
  }
  return Value::Bool(false);
}

// Returns the offset of one text in another, or npos.
size_t FindFirst(Runtime& rt, std::string_view text, std::string_view what) {
  return what.empty() ? 0 : Matches<>(rt.budget(), text, what).Next();
}
size_t FindLast(Runtime& rt, std::string_view text, std::string_view what) {
  return what.empty() ? text.size() : Matches<Backwards>(rt.budget(), text, what).Next();
}

// find and rfind; index and rindex fail where those return -1.
template <int side, bool must_be_there>
Value Find(Runtime& rt, const Value& self, CallArgs& args) {
  const auto [sub, start, end] = Bind(rt, "find", args, {"sub", "start", "end"}, 1);
  int64_t skipped = 0;
  const std::string_view text = Part(rt, self, start, end, &skipped);
  const std::string_view what = TextOr(rt, sub, "");
  if (rt.Failed()) return Value();
  const size_t at = side == kLeft ? FindFirst(rt, text, what) : FindLast(rt, text, what);
  if (rt.Failed()) return Value();
  if (at != std::string_view::npos && skipped >= 0) {
    rt.budget().StepBytes(at);
    return Value::Int(skipped + CountCodePoints(text.substr(0, at)));
  }
  if (must_be_there) return rt.Fail("substring not found");
  return Value::Int(-1);
}

Value Count(Runtime& rt, const Value& self, CallArgs& args) {
  const auto [sub, start, end] = Bind(rt, "count", args, {"sub", "start", "end"}, 1);
  int64_t skipped = 0;
  const std::string_view text = Part(rt, self, start, end, &skipped);
  const std::string_view what = TextOr(rt, sub, "");
  if (rt.Failed() || !rt.budget().StepBytes(text.size())) return Value();
  if (skipped < 0) return Value::Int(0);
  if (what.empty()) return Value::Int(CountCodePoints(text) + 1);
  int64_t count = 0;
  for (Matches<> matches(rt.budget(), text, what); matches.Next() != matches.kNone;) ++count;
  return Value::Int(count);
}

Value Replace(Runtime& rt, const Value& self, CallArgs& args) {
  const auto [from_value, to_value, count] = Bind(rt, "replace", args, {"old", "new", "count"}, 2);
  const std::string_view from = TextOr(rt, from_value, "");
  TextOr(rt, to_value, "");
  const int64_t limit = IntOr(rt, count, -1);
  if (rt.Failed()) return Value();
  const Value to = self.markup() ? EscapeHtml(rt, to_value) : to_value;
  return rt.Failed() ? Value() : ReplaceAll(rt, self, from, to.text(), limit);
}

Value JoinMethod(Runtime& rt, const Value& self, CallArgs& args) {
  const auto [iterable] = Bind(rt, "join", args, {"iterable"}, 1);
  if (rt.Failed()) return Value();
  const Value items = Iterate(rt, iterable);
  if (rt.Failed()) return Value();
  Text out(rt.budget());
  bool first = true;
  for (const Value& item : items.items()) {
    if (!item.is_string()) {
      return rt.Fail("sequence item: expected str instance, {} found", TypeName(item.type()));
    }
    if (!first && !out.Append(self.text())) return Value();
    first = false;
    const Value text = self.markup() ? EscapeHtml(rt, item) : item;
    if (rt.Failed() || !out.Append(text.text())) return Value();
  }
  return rt.Take(out, self.markup());
}

// partition, rpartition.
template <int side>
Value Partition(Runtime& rt, const Value& self, CallArgs& args) {
  const auto [sep] = Bind(rt, "partition", args, {"sep"}, 1);
  const std::string_view by = TextOr(rt, sep, "");
  if (rt.Failed()) return Value();
  if (by.empty()) return rt.Fail("empty separator");
  const std::string_view text = self.text();
  const size_t at = side == kLeft ? FindFirst(rt, text, by) : FindLast(rt, text, by);
  std::string_view parts[3] = {"", "", ""};
  if (at == std::string_view::npos) {
    parts[side == kLeft ? 0 : 2] = text;
  } else {
    parts[0] = text.substr(0, at);
    parts[1] = by;
    parts[2] = text.substr(at + by.size());
  }
  std::vector<Value> items;
  for (const std::string_view part : parts) items.push_back(rt.String(part, self.markup()));
  return rt.List(std::move(items), Type::kTuple);
}

template <int side>
Value RemoveAffix(Runtime& rt, const Value& self, CallArgs& args) {
  const auto [affix] = Bind(rt, "remove", args, {"affix"}, 1);
  const std::string_view piece = TextOr(rt, affix, "");
  std::string_view text = self.text();
  if (!rt.budget().StepBytes(std::min(piece.size(), text.size()))) return Value();
  if (side == kLeft && text.starts_with(piece))
    text.remove_prefix(piece.size());
  else if (side == kRight && text.ends_with(piece))
    text.remove_suffix(piece.size());
  return rt.Failed() ? Value() : rt.String(text, self.markup());
}

// ljust, rjust, center: `sides` says where the fill goes.
template <int sides>
Value Justify(Runtime& rt, const Value& self, CallArgs& args) {
  const auto [width_value, fill_value] = Bind(rt, "just", args, {"width", "fillchar"}, 1);
  const int64_t width = IntOr(rt, width_value, 0);
  const std::string_view fill = TextOr(rt, fill_value, " ");
  if (rt.Failed()) return Value();
  if (CountCodePoints(fill) != 1) return rt.Fail("the fill must be one character long");
  return width <= Length(rt, self) ? self : Pad(rt, self, width, fill, sides);
}

Value ZeroFill(Runtime& rt, const Value& self, CallArgs& args) {
  const auto [width_value] = Bind(rt, "zfill", args, {"width"}, 1);
  const int64_t missing = IntOr(rt, width_value, 0) - Length(rt, self);
  if (rt.Failed()) return Value();
  const std::string_view text = self.text();
  const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  Text out(rt.budget());
  out.Append(text.substr(0, sign));
  out.AppendTimes("0", missing);
  out.Append(text.substr(sign));
  return rt.Take(out, self.markup());
}

Value FormatMethod(Runtime& rt, const Value& self, CallArgs& args) {
  return FormatBraces(rt, self, args);
}

// Whether the text is not empty and all its characters satisfy the predicate.
template <bool (*predicate)(char32_t)>
Value All(Runtime& rt, const Value& self, CallArgs& args) {
  BindNothing(rt, "str method", args);
  if (!rt.budget().StepBytes(self.text().size() * 8)) return Value();
  for (size_t i = 0; i < self.text().size();) {
    if (!predicate(NextCodePoint(self.text(), i))) return Value::Bool(false);
  }
  return Value::Bool(!self.text().empty());
}

bool IsAlphanumeric(char32_t c) { return IsAlphabetic(c) || IsNumeric(c); }
bool IsAsciiCharacter(char32_t c) { return c < 0x80; }

Value IsAscii(Runtime& rt, const Value& self, CallArgs& args) {
  const Value all = All<IsAsciiCharacter>(rt, self, args);
  return Value::Bool(self.text().empty() || Truth(all));
}

Value IsLowerMethod(Runtime& rt, const Value& self, CallArgs& args) {
  return Value::Bool(FindTest("lower")(rt, self, args));
}
Value IsUpperMethod(Runtime& rt, const Value& self, CallArgs& args) {
  return Value::Bool(FindTest("upper")(rt, self, args));
}
Value IsTitle(Runtime& rt, const Value& self, CallArgs& args) {
  BindNothing(rt, "istitle", args);
  if (!rt.budget().StepBytes(self.text().size() * 8)) return Value();
  bool inside = false, found = false;
  for (size_t i = 0; i < self.text().size();) {
    const char32_t c = NextCodePoint(self.text(), i);
    if (inside ? IsUpper(c) : IsLower(c)) return Value::Bool(false);
    inside = IsUpper(c) || IsLower(c);
    found |= inside;
  }
  return Value::Bool(found);
}

}  // namespace

Value StripText(Runtime& rt, const Value& value, const Value& chars, int sides) {
  std::string_view text = value.text();
  if (chars.is_missing() || chars.is_none()) {
    if ((sides & kLeft) != 0) text = StripLeft(text);
    if ((sides & kRight) != 0) text = StripRight(text);
  } else {
    const std::string_view set = TextOr(rt, chars, "");
    const size_t cost = (set.size() + 1) * (text.size() / 64 + 1);
    if (rt.Failed() || !rt.budget().Step(static_cast<int64_t>(cost))) return Value();
    if ((sides & kLeft) != 0) text = StripLeft(text, set);
    if ((sides & kRight) != 0) text = StripRight(text, set);
  }
  if (text.size() == value.text().size()) return value;
  rt.budget().StepBytes((value.text().size() - text.size()) * 4);
  return rt.String(text, value.markup());
}

Value Pad(Runtime& rt, const Value& text, int64_t width, std::string_view fill, int sides) {
  const int64_t missing = std::max<int64_t>(width - Length(rt, text), 0);
  const int64_t left = sides == (kLeft | kRight) ? missing / 2 + (missing & width & 1)
                       : sides == kLeft          ? missing
                                                 : 0;
  Text out(rt.budget());
  out.AppendTimes(fill, left);
  out.Append(text.text());
  out.AppendTimes(fill, missing - left);
  return rt.Take(out, text.markup());
}

Value ReplaceAll(Runtime& rt, const Value& value, std::string_view from, std::string_view to,
                 int64_t limit) {
  const std::string_view text = value.text();
  Text out(rt.budget());
  size_t at = 0;
  if (from.empty()) {  // between all characters
    while (limit != 0) {
      if (!out.Append(to)) return Value();
      if (limit > 0) --limit;
      if (at == text.size()) break;
      const size_t start = at;
      NextCodePoint(text, at);
      if (!out.Append(text.substr(start, at - start))) return Value();
    }
  } else {
    Matches<> matches(rt.budget(), text, from);
    for (; limit != 0; limit -= limit > 0 ? 1 : 0) {
      const size_t found = matches.Next();
      if (found == matches.kNone) break;
      if (!out.Append(text.substr(at, found - at)) || !out.Append(to)) return Value();
      at = found + from.size();
    }
    if (at == 0) return value;
  }
  if (!out.Append(text.substr(at))) return Value();
  return rt.Take(out, value.markup());
}

std::string_view TakeLine(std::string_view* text, bool keep_end) {
  for (size_t i = 0; i < text->size();) {
    const size_t at = i;
    const char32_t c = NextCodePoint(*text, i);
    const bool ends =
        (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && i < text->size() && (*text)[i] == '\n') ++i;
    const std::string_view line = text->substr(0, keep_end ? i : at);
    text->remove_prefix(i);
    return line;
  }
  return std::exchange(*text, std::string_view());
}

std::span<const Named<Method>> StringMethods() {
  static constexpr Named<Method> kMethods[] = {
      {"split", Split<kLeft>},
      {"strip", Strip<kLeft | kRight>},
      {"lstrip", Strip<kLeft>},
      {"rstrip", Strip<kRight>},
      {"startswith", StartsWith<kLeft>},
      {"endswith", StartsWith<kRight>},
      {"format", FormatMethod},
      {"replace", Replace},
      {"capitalize", Convert<Capitalize>},
      {"casefold", Convert<ToLower>},
      {"center", Justify<kLeft | kRight>},
      {"count", Count},
      {"find", Find<kLeft, false>},
      {"index", Find<kLeft, true>},
      {"isalnum", All<IsAlphanumeric>},
      {"isalpha", All<IsAlphabetic>},
      {"isascii", IsAscii},
      {"isdecimal", All<IsDecimal>},
      {"isdigit", All<IsDigit>},
      {"islower", IsLowerMethod},
      {"isnumeric", All<IsNumeric>},
      {"isspace", All<IsSpace>},
      {"istitle", IsTitle},
      {"isupper", IsUpperMethod},
      {"join", JoinMethod},
      {"ljust", Justify<kRight>},
      {"lower", Convert<ToLower>},
      {"partition", Partition<kLeft>},
      {"removeprefix", RemoveAffix<kLeft>},
      {"removesuffix", RemoveAffix<kRight>},
      {"rfind", Find<kRight, false>},
      {"rindex", Find<kRight, true>},
      {"rjust", Justify<kLeft>},
      {"rpartition", Partition<kRight>},
      {"rsplit", Split<kRight>},
      {"splitlines", SplitLinesMethod},
      {"swapcase", Convert<SwapCase>},
      {"title", Convert<ToTitle>},
      {"upper", Convert<ToUpper>},
      {"zfill", ZeroFill},
  };
  return kMethods;
}

}  // namespace tokamak::jinja
