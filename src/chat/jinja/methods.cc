// The methods of lists, dictionaries, floats and loops.
#include <algorithm>

#include "chat/jinja/arguments.h"

namespace tokamak::jinja {
namespace {

Value Get(Runtime& rt, const Value& self, CallArgs& args) {
  auto [key, fallback] = Bind(rt, "get", args, {"key", "default"}, 1);
  if (rt.Failed()) return Value();
  if (!Hashable(key)) return rt.Fail("unhashable type: '{}'", TypeName(key.type()));
  const Value* found = self.dict().Find(key, &rt.budget());
  if (found != nullptr) return *found;
  return fallback.is_missing() ? Value::None() : fallback;
}

template <Type kind>
Value Entries(Runtime& rt, const Value& self, CallArgs& args) {
  BindNothing(rt, "dict method", args);
  std::vector<Value> items;
  const auto& entries = self.dict().entries;
  if (!rt.budget().StepBytes(entries.size() * sizeof(Value))) return Value();
  items.reserve(entries.size());
  for (const auto& [key, value] : entries) {
    items.push_back(kind == Type::kDictKeys     ? key
                    : kind == Type::kDictValues ? value
                                                : rt.List({key, value}, Type::kTuple));
    if (rt.Failed()) return Value();
  }
  return rt.List(std::move(items), kind);
}

Value Copy(Runtime& rt, const Value& self, CallArgs& args) {
  BindNothing(rt, "copy", args);
  return self;  // dictionaries do not change, so a copy may share
}

Value Count(Runtime& rt, const Value& self, CallArgs& args) {
  const auto [value] = Bind(rt, "count", args, {"value"}, 1);
  int64_t count = 0;
  for (const Value& item : self.items()) {
    count += Equal(item, value, &rt.budget()) ? 1 : 0;
    if (rt.Failed()) return Value();
  }
  return Value::Int(count);
}

Value Index(Runtime& rt, const Value& self, CallArgs& args) {
  const auto [value, start, stop] = Bind(rt, "index", args, {"value", "start", "stop"}, 1);
  const auto length = static_cast<int64_t>(self.items().size());
  const auto clamp = [&](const Value& bound, int64_t fallback) {
    const int64_t i = IntOr(rt, bound, fallback);
    return i < 0 ? std::max<int64_t>(i < -length ? 0 : i + length, 0) : std::min(i, length);
  };
  for (int64_t i = clamp(start, 0), end = clamp(stop, length); i < end; ++i) {
    if (Equal(self.items()[static_cast<size_t>(i)], value, &rt.budget())) return Value::Int(i);
    if (rt.Failed()) return Value();
  }
  return rt.Fail("the value is not in the {}", TypeName(self.type()));
}

Value IsInteger(Runtime& rt, const Value& self, CallArgs& args) {
  BindNothing(rt, "is_integer", args);
  const double number = self.number();
  return Value::Bool(number == static_cast<double>(static_cast<int64_t>(number)));
}

Value Cycle(Runtime& rt, const Value& self, CallArgs& args) {
  if (args.positional.empty()) return rt.Fail("no items for cycling given");
  const auto index = static_cast<size_t>(self.loop().index0);
  return args.positional[index % args.positional.size()];
}

Value Changed(Runtime& rt, const Value& self, CallArgs& args) {
  LoopObject& loop = self.loop();
  // The arguments may contain the loop itself: the interpreter clears `changed` when the loop ends.
  const Value now = rt.List(std::move(args.positional), Type::kTuple);
  if (rt.Failed()) return Value();
  if (!loop.changed.is_missing() && Equal(loop.changed, now, &rt.budget())) {
    return Value::Bool(false);
  }
  loop.changed = now;
  return Value::Bool(true);
}

}  // namespace

std::span<const Named<Method>> MethodsOf(Type type) {
  static constexpr Named<Method> kDict[] = {{"get", Get},
                                            {"items", Entries<Type::kDictItems>},
                                            {"keys", Entries<Type::kDictKeys>},
                                            {"values", Entries<Type::kDictValues>},
                                            {"copy", Copy}};
  static constexpr Named<Method> kList[] = {{"count", Count}, {"index", Index}, {"copy", Copy}};
  static constexpr Named<Method> kFloat[] = {{"is_integer", IsInteger}};
  static constexpr Named<Method> kLoop[] = {{"cycle", Cycle}, {"changed", Changed}};
  switch (type) {
    case Type::kString:
      return StringMethods();
    case Type::kDict:
      return kDict;
    case Type::kList:
      return kList;
    case Type::kTuple:
      return std::span(kList).first(2);
    case Type::kFloat:
      return kFloat;
    case Type::kLoop:
      return kLoop;
    default:
      return {};
  }
}

Method FindMethod(Type type, std::string_view name) { return FindNamed(MethodsOf(type), name); }

bool ChangesIt(Type type, std::string_view name) {
  const auto in = [name](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (type == Type::kDict) return in({"clear", "pop", "popitem", "setdefault", "update"});
  return type == Type::kList &&
         in({"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"});
}

}  // namespace tokamak::jinja
