// Lengths, items, attributes and slices.
#include <algorithm>

#include "chat/jinja/operators.h"
#include "chat/jinja/print.h"
#include "chat/jinja/unicode.h"

namespace tokamak::jinja {
namespace {

int64_t StringLength(const Value& value) {
  const StringObject& string = value.string();
  // Many threads read constants: do not cache their lengths.
  if (string.shared) return CountCodePoints(string.text);
  if (string.length < 0) string.length = CountCodePoints(string.text);
  return string.length;
}

// Whether each byte of the string is a code point.
bool IsAscii(Runtime& rt, const Value& value) {
  rt.budget().StepBytes(value.string().length < 0 ? value.text().size() : 0);
  return StringLength(value) == static_cast<int64_t>(value.text().size());
}

// Resolves Python's index into `length` items; false if it is out of range.
bool Index(const Value& key, int64_t length, size_t* out) {
  int64_t i = key.integer();
  if (i < 0) i += length;
  *out = static_cast<size_t>(i);
  return i >= 0 && i < length;
}

// value[key] in Python; Missing for those errors that Jinja treats as "not there".
Value Subscript(Runtime& rt, const Value& value, const Value& key) {
  size_t i = 0;
  switch (value.type()) {
    case Type::kUndefined:
      return rt.FailWith(value.UndefinedMessage());
    case Type::kDict: {
      if (!Hashable(key)) return Value::Missing();
      const Value* found = value.dict().Find(key, &rt.budget());
      return found == nullptr ? Value::Missing() : *found;
    }
    case Type::kList:
    case Type::kTuple: {
      const auto length = static_cast<int64_t>(value.items().size());
      if (!key.is_integral() || !Index(key, length, &i)) return Value::Missing();
      return value.items()[i];
    }
    case Type::kString:
      if (!key.is_integral() || !Index(key, Length(rt, value), &i)) return Value::Missing();
      return rt.String(Characters(rt, value, static_cast<int64_t>(i), 1), value.markup());
    case Type::kRange:
      if (!key.is_integral() || !Index(key, value.range().length, &i)) return Value::Missing();
      return Value::Int(value.range().start + static_cast<int64_t>(i) * value.range().step);
    default:
      return Value::Missing();
  }
}

Value LoopAttribute(Runtime& rt, LoopObject& loop, std::string_view name) {
  if (name == "index") return Value::Int(loop.index0 + 1);
  if (name == "index0") return Value::Int(loop.index0);
  if (name == "first") return Value::Bool(loop.index0 == 0);
  if (name == "length") return Value::Int(LoopLength(rt, loop));
  if (name == "revindex") return Value::Int(LoopLength(rt, loop) - loop.index0);
  if (name == "revindex0") return Value::Int(LoopLength(rt, loop) - loop.index0 - 1);
  if (name == "depth") return Value::Int(loop.depth0 + 1);
  if (name == "depth0") return Value::Int(loop.depth0);
  if (name == "previtem") return loop.index0 == 0 ? Value() : loop.previous;
  if (name == "last" || name == "nextitem") {
    if (!loop.has_pending) {
      std::optional<Value> next = rt.NextItem(loop);
      if (next) {
        loop.pending = *std::move(next);
        loop.has_pending = true;
      }
    }
    if (name == "last") return Value::Bool(!loop.has_pending);
    return loop.has_pending ? loop.pending : Value();
  }
  return Value::Missing();
}

// getattr(value, name); Missing where Python raises AttributeError.
Value Attribute(Runtime& rt, const Value& value, const Value& name_value) {
  const std::string_view name = name_value.text();
  if (value.is_undefined()) return rt.FailWith(value.UndefinedMessage());
  if (name.starts_with("__")) return Value::Unsafe(name_value, value.type());
  if (value.is(Type::kNamespace)) {
    const Value* found = value.name_space().Find(name, rt.budget());
    return found == nullptr ? Value::Missing() : *found;
  }
  if (value.is(Type::kLoop)) {
    Value found = LoopAttribute(rt, value.loop(), name);
    if (!found.is_missing()) return found;
  }
  if (ChangesIt(value.type(), name)) return Value::Unsafe(name_value, value.type());
  const Method method = FindMethod(value.type(), name);
  if (method == nullptr) return Value::Missing();
  auto bound = std::make_unique<CallableObject>();
  if (!rt.budget().Charge(sizeof(CallableObject))) return Value();
  bound->budget = &rt.budget();
  bound->charged = sizeof(CallableObject);
  bound->method = method;
  bound->receiver = value;
  if (const Object* object = value.object()) bound->depth = object->depth + 1;
  if (bound->depth > kMaxNesting) {
    rt.budget().Exhaust("its values nest too deeply");
    return Value();
  }
  return Value::FromObject(Type::kCallable, bound.release());
}

Value NotThere(Runtime& rt, const Value& value, const Value& key) {
  if (key.is_string()) return Value::Undefined(key, value.type());
  return Value::Undefined(Repr(rt, key), value.type());
}

}  // namespace

std::string_view Characters(Runtime& rt, const Value& value, int64_t start, int64_t count) {
  const std::string_view text = value.text();
  if (IsAscii(rt, value)) {
    return text.substr(static_cast<size_t>(start), static_cast<size_t>(count));
  }
  const std::string_view rest = text.substr(OffsetOf(text, start));
  const std::string_view part = rest.substr(0, OffsetOf(rest, count));
  rt.budget().StepBytes(text.size() - rest.size() + part.size());
  return part;
}

bool HasLength(const Value& value) {
  return value.is_string() || value.is_undefined() || value.is_dict() || value.is(Type::kRange) ||
         value.is(Type::kLoop) || (value.is_list_like() && !value.is(Type::kGenerator));
}

int64_t Length(Runtime& rt, const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) {
    rt.budget().StepBytes(value.string().length < 0 ? value.text().size() : 0);
    return StringLength(value);
  }
  if (value.is_dict()) return static_cast<int64_t>(value.dict().entries.size());
  if (value.is(Type::kRange)) return value.range().length;
  if (value.is(Type::kLoop)) return LoopLength(rt, value.loop());
  if (HasLength(value)) return static_cast<int64_t>(value.items().size());
  rt.Fail("object of type '{}' has no len()", TypeName(value.type()));
  return -1;
}

bool IsIterable(const Value& value) {
  return value.is_string() || value.is_undefined() || value.is_dict() || value.is(Type::kRange) ||
         value.is(Type::kLoop) || value.is_list_like();
}

Value Iterate(Runtime& rt, const Value& value) {
  std::vector<Value> items;
  switch (value.type()) {
    case Type::kUndefined:
      break;
    case Type::kList:
    case Type::kTuple:
    case Type::kDictKeys:
    case Type::kDictValues:
    case Type::kDictItems:
      return value;
    case Type::kGenerator: {
      ListObject& list = value.list();
      const size_t position = std::exchange(list.position, list.items.size());
      if (position == 0) return value;
      items.assign(list.items.begin() + static_cast<ptrdiff_t>(position), list.items.end());
      break;
    }
    case Type::kString: {
      const std::string_view text = value.text();
      if (!rt.budget().Step(StringLength(value))) return Value();
      if (!rt.budget().Charge(text.size() * sizeof(Value))) return Value();  // for this list
      for (size_t i = 0; i < text.size() && !rt.Failed();) {
        const size_t start = i;
        NextCodePoint(text, i);
        items.push_back(rt.String(text.substr(start, i - start), value.markup()));
      }
      rt.budget().Release(text.size() * sizeof(Value));
      break;
    }
    case Type::kDict:
      for (const auto& entry : value.dict().entries) items.push_back(entry.first);
      break;
    case Type::kRange: {
      const RangeObject& range = value.range();
      for (int64_t i = 0; i < range.length; ++i) {
        items.push_back(Value::Int(range.start + i * range.step));
      }
      break;
    }
    default:
      return rt.Fail("'{}' object is not iterable", TypeName(value.type()));
  }
  if (rt.Failed() || !rt.budget().StepBytes(items.size() * sizeof(Value))) return Value();
  return rt.List(std::move(items));
}

Value GetItem(Runtime& rt, const Value& value, const Value& key) {
  Value found = Subscript(rt, value, key);
  if (!found.is_missing() || rt.Failed()) return found;
  if (key.is_string()) {
    found = Attribute(rt, value, key);
    if (!found.is_missing() || rt.Failed()) return found;
  }
  return NotThere(rt, value, key);
}

Value GetAttribute(Runtime& rt, const Value& value, const Value& name) {
  // Attributes first, the usual case: a dictionary has few attributes and many keys.
  Value found = Attribute(rt, value, name);
  if (!found.is_missing() || rt.Failed()) return found;
  found = Subscript(rt, value, name);
  if (!found.is_missing() || rt.Failed()) return found;
  return NotThere(rt, value, name);
}

namespace {

// Python's slice.indices: the first index, the step and the number of items.
struct SliceRange {
  int64_t start = 0, step = 1, count = 0;
};

bool SliceIndex(Runtime& rt, const Value& value, int64_t* out) {
  if (value.is_missing() || value.is_none()) return false;
  if (value.is_integral()) {
    *out = value.integer();
    return true;
  }
  rt.FailFor(value, "slice indices must be integers or None, not {}", TypeName(value.type()));
  return false;
}

SliceRange ResolveSlice(Runtime& rt, int64_t length, const Value& start, const Value& stop,
                        const Value& step) {
  SliceRange range;
  SliceIndex(rt, step, &range.step);
  if (range.step == 0) {
    rt.Fail("slice step cannot be zero");
    return range;
  }
  const bool down = range.step < 0;
  const int64_t low = down ? -1 : 0, high = down ? length - 1 : length;
  const auto bound = [&](const Value& value, int64_t fallback) {
    int64_t i = 0;
    if (!SliceIndex(rt, value, &i)) return fallback;
    if (i < 0) i = i < -length ? low : i + length;
    return std::clamp(i, low, high);
  };
  range.start = bound(start, down ? high : low);
  const int64_t end = bound(stop, down ? low : high);
  const int64_t span = down ? range.start - end : end - range.start;
  if (span <= 0) return range;
  // Unsigned, so that no step overflows.
  const uint64_t stride =
      down ? uint64_t{0} - static_cast<uint64_t>(range.step) : static_cast<uint64_t>(range.step);
  range.count = static_cast<int64_t>((static_cast<uint64_t>(span) - 1) / stride) + 1;
  return range;
}

Value SliceString(Runtime& rt, const Value& value, const SliceRange& slice) {
  const std::string_view text = value.text();
  if (slice.count == 0) return rt.String(std::string(), value.markup());
  if (slice.step == 1) {
    return rt.String(Characters(rt, value, slice.start, slice.count), value.markup());
  }
  std::vector<size_t> starts;  // of the code points
  if (!rt.budget().Charge(text.size() * sizeof(size_t))) return Value();
  for (size_t i = 0; i < text.size();) {
    starts.push_back(i);
    NextCodePoint(text, i);
  }
  std::string out;
  for (int64_t i = 0; i < slice.count; ++i) {
    size_t at = starts[static_cast<size_t>(slice.start + i * slice.step)];
    const size_t begin = at;
    NextCodePoint(text, at);
    out += text.substr(begin, at - begin);
  }
  rt.budget().Release(text.size() * sizeof(size_t));
  return rt.String(std::move(out), value.markup());
}

}  // namespace

Value GetSlice(Runtime& rt, const Value& value, const Value& start, const Value& stop,
               const Value& step) {
  if (!value.is_string() && !value.is(Type::kList) && !value.is(Type::kTuple) &&
      !value.is(Type::kRange)) {
    return rt.FailFor(value, "'{}' object cannot be sliced", TypeName(value.type()));
  }
  const SliceRange slice = ResolveSlice(rt, Length(rt, value), start, stop, step);
  if (rt.Failed()) return Value();
  if (value.is_string()) return SliceString(rt, value, slice);
  if (value.is(Type::kRange)) {
    const RangeObject& range = value.range();
    const int64_t first = range.start + slice.start * range.step;
    const int64_t stride = slice.count > 1 ? slice.step * range.step : 1;
    const uint64_t stop_at = static_cast<uint64_t>(first) +  // may wrap: then the range is empty
                             static_cast<uint64_t>(slice.count) * static_cast<uint64_t>(stride);
    return MakeRange(rt, first, static_cast<int64_t>(stop_at), stride);
  }
  if (!rt.budget().StepBytes(static_cast<size_t>(slice.count) * sizeof(Value))) return Value();
  std::vector<Value> items;
  for (int64_t i = 0; i < slice.count; ++i) {
    items.push_back(value.items()[static_cast<size_t>(slice.start + i * slice.step)]);
  }
  return rt.List(std::move(items), value.type());
}

Value MakeRange(Runtime& rt, int64_t start, int64_t stop, int64_t step) {
  constexpr int64_t kMaxLength = 100000;  // the limit of Jinja's sandbox
  if (step == 0) return rt.Fail("range() arg 3 must not be zero");
  auto range = std::make_unique<RangeObject>();
  range->start = start;
  range->stop = stop;
  range->step = step;
  const bool empty = step > 0 ? start >= stop : start <= stop;
  if (!empty) {
    const uint64_t span = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                   : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
    const uint64_t stride =
        step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
    const uint64_t length = (span - 1) / stride + 1;
    if (length > kMaxLength) return rt.Fail("a range has more than {} numbers", kMaxLength);
    range->length = static_cast<int64_t>(length);
  }
  if (!rt.budget().Charge(sizeof(RangeObject))) return Value();
  range->budget = &rt.budget();
  range->charged = sizeof(RangeObject);
  return Value::FromObject(Type::kRange, range.release());
}

int64_t LoopLength(Runtime& rt, LoopObject& loop) {
  if (loop.length >= 0) return loop.length;
  std::vector<Value> rest;
  const bool had_pending = std::exchange(loop.has_pending, false);
  while (std::optional<Value> next = rt.NextItem(loop)) rest.push_back(*std::move(next));
  loop.has_pending = had_pending;
  loop.length = loop.index0 + 1 + (had_pending ? 1 : 0) + static_cast<int64_t>(rest.size());
  loop.source = rt.List(std::move(rest));
  loop.position = 0;
  loop.filtered = false;
  return loop.length;
}

}  // namespace tokamak::jinja
