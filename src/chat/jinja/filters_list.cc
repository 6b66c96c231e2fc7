// Filters on sequences and dictionaries.
#include <algorithm>

#include "chat/jinja/arguments.h"
#include "chat/jinja/format.h"
#include "chat/jinja/unicode.h"

namespace tokamak::jinja {
namespace {

// "a.b.0" or a number: the path to a value inside an item.
class AttributePath {
 public:
  // Missing or None refers to the item itself.
  AttributePath(Runtime& rt, const Value& attribute, Value fallback = Value::Missing())
      : fallback_(std::move(fallback)) {
    if (attribute.is_missing() || attribute.is_none()) return;
    if (!attribute.is_string()) {
      parts_.push_back(attribute);
      return;
    }
    std::string_view rest = attribute.text();
    constexpr size_t kMaxBytes = 4096;  // bounds the number of parts
    if (rest.size() > kMaxBytes) {
      rt.Fail("an attribute's name has more than {} bytes", kMaxBytes);
      return;
    }
    for (;;) {
      const size_t dot = std::min(rest.find('.'), rest.size());
      const std::string_view part = rest.substr(0, dot);
      const bool digits =
          !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
      const std::optional<int64_t> number = digits ? ParseInt(part, 10) : std::nullopt;
      parts_.push_back(number ? Value::Int(*number) : rt.String(part));
      if (dot == rest.size()) break;
      rest.remove_prefix(dot + 1);
    }
  }

  Value Get(Runtime& rt, Value item) const {
    for (const Value& part : parts_) {
      if (rt.Failed() || !rt.budget().Step()) return Value();
      item = GetItem(rt, item, part);
      const bool has_fallback = !fallback_.is_missing() && !fallback_.is_none();
      if (has_fallback && item.is_undefined()) item = fallback_;
    }
    return item;
  }

 private:
  std::vector<Value> parts_;
  Value fallback_;
};

// Converts strings to lower case unless case matters.
Value Folded(Runtime& rt, Value value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  rt.budget().StepBytes(value.text().size() * 8);
  return rt.String(ToLower(value.text()));
}

// Returns the items to iterate over; empty after an error.
std::vector<Value> ItemsOf(Runtime& rt, const Value& input) {
  const Value items = Iterate(rt, input);
  if (rt.Failed() || items.is_undefined()) return {};
  if (!rt.budget().StepBytes(items.items().size() * sizeof(Value))) return {};
  return items.items();
}

struct Keyed {
  Value key, item;
};

enum class Keys : bool { kPlain, kMayBeEqual };

// With kMayBeEqual, comparing equal keys that have no order is no error.
std::vector<Keyed> SortedBy(Runtime& rt, std::vector<Value> items, const AttributePath& path,
                            bool case_sensitive, bool reverse, Keys keys = Keys::kPlain) {
  std::vector<Keyed> keyed;
  for (Value& item : items) {
    if (rt.Failed()) return {};
    Value key = Folded(rt, path.Get(rt, item), case_sensitive);
    keyed.push_back({std::move(key), std::move(item)});
  }
  // Equal items keep their order, even with `reverse`.
  StableSort(rt, keyed, [&](const Keyed& a, const Keyed& b) {
    if (keys == Keys::kMayBeEqual && Equal(a.key, b.key, &rt.budget())) return false;
    return reverse ? Less(rt, b.key, a.key) : Less(rt, a.key, b.key);
  });
  return keyed;
}

Value ItemsOnly(Runtime& rt, std::vector<Keyed> keyed) {
  std::vector<Value> items;
  for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
  return rt.List(std::move(items));
}

Value Sort(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [reverse, case_sensitive, attribute] =
      Bind(rt, "sort", args, {"reverse", "case_sensitive", "attribute"});
  const bool exact = TruthOr(case_sensitive, false), down = TruthOr(reverse, false);
  if (attribute.is_string() && !rt.budget().StepBytes(attribute.text().size())) return Value();
  if (attribute.is_string() && attribute.text().find(',') != std::string_view::npos) {
    // Sorts by the last attribute first; each sort keeps the order of the previous one.
    std::vector<Value> items = ItemsOf(rt, input);
    std::string_view rest = attribute.text();
    while (!rt.Failed()) {
      const size_t comma = rest.rfind(',');
      const std::string_view name = comma == std::string_view::npos ? rest : rest.substr(comma + 1);
      auto keyed = SortedBy(rt, std::move(items), AttributePath(rt, rt.String(name)), exact, down,
                            Keys::kMayBeEqual);
      items.clear();
      for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
      if (comma == std::string_view::npos) break;
      rest = rest.substr(0, comma);
    }
    return rt.List(std::move(items));
  }
  const AttributePath path(rt, attribute);
  return ItemsOnly(rt, SortedBy(rt, ItemsOf(rt, input), path, exact, down, Keys::kMayBeEqual));
}

Value DictSort(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [case_sensitive, by_value, reverse] =
      Bind(rt, "dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string_view by = TextOr(rt, by_value, "key");
  if (rt.Failed()) return Value();
  if (by != "key" && by != "value") return rt.Fail("dictsort sorts by \"key\" or \"value\"");
  if (!input.is_dict()) {
    return rt.FailFor(input, "dictsort: '{}' is not a mapping", TypeName(input.type()));
  }
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.dict().entries) {
    pairs.push_back(rt.List({key, value}, Type::kTuple));
    if (rt.Failed()) return Value();
  }
  const AttributePath path(rt, Value::Int(by == "key" ? 0 : 1));
  return ItemsOnly(rt, SortedBy(rt, std::move(pairs), path, TruthOr(case_sensitive, false),
                                TruthOr(reverse, false)));
}

Value GroupBy(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [attribute, fallback, case_sensitive] =
      Bind(rt, "groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(rt, attribute, fallback);
  const auto sorted = SortedBy(rt, ItemsOf(rt, input), path, TruthOr(case_sensitive, false), false);
  std::vector<Value> groups;
  for (size_t i = 0; i < sorted.size() && !rt.Failed();) {
    std::vector<Value> members;
    const size_t first = i;
    for (; i < sorted.size() && Equal(sorted[i].key, sorted[first].key, &rt.budget()); ++i) {
      members.push_back(sorted[i].item);
    }
    if (rt.Failed()) return Value();
    if (i == first) ++i;  // a key that does not even equal itself
    groups.push_back(
        rt.List({path.Get(rt, sorted[first].item), rt.List(std::move(members))}, Type::kTuple));
  }
  return rt.List(std::move(groups));
}

Value Unique(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [case_sensitive, attribute] =
      Bind(rt, "unique", args, {"case_sensitive", "attribute"});
  const AttributePath path(rt, attribute);
  DictObject seen;
  std::vector<Value> items;
  for (Value& item : ItemsOf(rt, input)) {
    Value key = Folded(rt, path.Get(rt, item), TruthOr(case_sensitive, false));
    if (rt.Failed()) return Value();
    if (!Hashable(key)) return rt.Fail("unhashable type: '{}'", TypeName(key.type()));
    if (seen.Find(key, &rt.budget()) != nullptr) continue;
    seen.Set(std::move(key), Value::None(), &rt.budget());
    items.push_back(std::move(item));
  }
  return rt.List(std::move(items), Type::kGenerator);
}

template <bool largest>
Value Extreme(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [case_sensitive, attribute] =
      Bind(rt, largest ? "max" : "min", args, {"case_sensitive", "attribute"});
  const AttributePath path(rt, attribute);
  std::optional<Keyed> best;
  for (Value& item : ItemsOf(rt, input)) {
    Value key = Folded(rt, path.Get(rt, item), TruthOr(case_sensitive, false));
    if (rt.Failed()) return Value();
    const bool better = !best || (largest ? Less(rt, best->key, key) : Less(rt, key, best->key));
    if (better) best = Keyed{std::move(key), std::move(item)};
  }
  return best ? best->item : Value();
}

Value Sum(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [attribute, start] = Bind(rt, "sum", args, {"attribute", "start"});
  const AttributePath path(rt, attribute);
  Value total = start.is_missing() ? Value::Int(0) : start;
  if (total.is_string()) return rt.Fail("sum() can't sum strings");
  for (const Value& item : ItemsOf(rt, input)) {
    total = Arithmetic(rt, Operator::kAdd, total, path.Get(rt, item));
    if (rt.Failed()) return Value();
  }
  return total;
}

Value Join(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [d, attribute] = Bind(rt, "join", args, {"d", "attribute"});
  const AttributePath path(rt, attribute);
  const Value between = d.is_missing() ? rt.String(std::string()) : ToStr(rt, d);
  Text out(rt.budget());
  bool first = true;
  for (const Value& item : ItemsOf(rt, input)) {
    if (rt.Failed()) return Value();
    if (!first && !out.Append(between.text())) return Value();
    first = false;
    if (!Print(rt, path.Get(rt, item), out)) return Value();
  }
  return rt.Failed() ? Value() : rt.Take(out);
}

Value LengthFilter(Runtime& rt, const Value& input, CallArgs& args) {
  BindNothing(rt, "length", args);
  return Value::Int(Length(rt, input));
}

Value First(Runtime& rt, const Value& input, CallArgs& args) {
  BindNothing(rt, "first", args);
  if (input.is_string() && !input.text().empty()) return GetItem(rt, input, Value::Int(0));
  if (input.is(Type::kGenerator)) {  // reads only this item
    ListObject& list = input.list();
    return list.position < list.items.size() ? list.items[list.position++] : Value();
  }
  const Value items = Iterate(rt, input);
  if (rt.Failed() || items.items().empty()) return Value();
  return items.items().front();
}

Value Last(Runtime& rt, const Value& input, CallArgs& args) {
  BindNothing(rt, "last", args);
  if (input.is(Type::kGenerator)) return rt.Fail("'generator' object is not reversible");
  if (input.is_undefined()) return rt.Fail("'Undefined' object is not reversible");
  if (input.is_string() && !input.text().empty()) return GetItem(rt, input, Value::Int(-1));
  const Value items = Iterate(rt, input);
  if (rt.Failed() || items.items().empty()) return Value();
  return items.items().back();
}

Value ToList(Runtime& rt, const Value& input, CallArgs& args) {
  BindNothing(rt, "list", args);
  return rt.List(ItemsOf(rt, input));
}

Value Reverse(Runtime& rt, const Value& input, CallArgs& args) {
  BindNothing(rt, "reverse", args);
  if (input.is_string()) {
    return GetSlice(rt, input, Value::Missing(), Value::Missing(), Value::Int(-1));
  }
  std::vector<Value> items = ItemsOf(rt, input);
  std::reverse(items.begin(), items.end());
  return rt.List(std::move(items), Type::kGenerator);
}

Value Items(Runtime& rt, const Value& input, CallArgs& args) {
  BindNothing(rt, "items", args);
  std::vector<Value> pairs;
  if (!input.is_undefined()) {
    if (!input.is_dict()) return rt.Fail("Can only get item pairs from a mapping.");
    for (const auto& [key, value] : input.dict().entries) {
      pairs.push_back(rt.List({key, value}, Type::kTuple));
      if (rt.Failed()) return Value();
    }
  }
  return rt.List(std::move(pairs), Type::kGenerator);
}

Value Default(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [fallback, boolean] = Bind(rt, "default", args, {"default_value", "boolean"});
  if (!input.is_undefined() && !(TruthOr(boolean, false) && !Truth(input))) return input;
  return fallback.is_missing() ? rt.String(std::string()) : fallback;
}

Value Attr(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [name] = Bind(rt, "attr", args, {"name"}, 1);
  if (rt.Failed()) return Value();
  if (!name.is_string()) return rt.Fail("attr: the name must be a string");
  // Unlike a dot, attr never returns an item.
  if (input.is_dict() && FindMethod(Type::kDict, name.text()) == nullptr &&
      !ChangesIt(Type::kDict, name.text())) {
    return Value::Undefined(name, Type::kDict);
  }
  return GetAttribute(rt, input, name);
}

// The steps for copying the arguments for one item; a few are free.
int64_t ArgumentSteps(const CallArgs& args) {
  return static_cast<int64_t>((args.positional.size() + args.named.size()) / 4);
}

Value Map(Runtime& rt, const Value& input, CallArgs& args) {
  std::vector<Value> items;
  if (!Truth(input)) return rt.List({}, Type::kGenerator);
  if (args.positional.empty()) {
    CallArgs named;
    named.named = args.named;
    const auto [attribute, fallback] = Bind(rt, "map", named, {"attribute", "default"}, 1);
    const AttributePath path(rt, attribute, fallback);
    for (const Value& item : ItemsOf(rt, input)) {
      items.push_back(path.Get(rt, item));
      if (rt.Failed()) return Value();
    }
    return rt.List(std::move(items), Type::kGenerator);
  }
  const std::string_view name = TextOr(rt, args.positional[0], "");
  const Filter filter = FindFilter(name);
  if (!rt.Failed() && filter == nullptr) return rt.Fail("No filter named '{}'.", name);
  for (const Value& item : ItemsOf(rt, input)) {
    if (rt.Failed() || !rt.budget().Step(1 + ArgumentSteps(args))) return Value();
    CallArgs rest;
    rest.positional.assign(args.positional.begin() + 1, args.positional.end());
    rest.named = args.named;
    items.push_back(filter(rt, item, rest));
  }
  return rt.List(std::move(items), Type::kGenerator);
}

// select, reject, selectattr, rejectattr.
template <bool wanted, bool by_attribute>
Value Choose(Runtime& rt, const Value& input, CallArgs& args) {
  if (!Truth(input)) return rt.List({}, Type::kGenerator);
  const size_t skip = by_attribute ? 1 : 0;
  if (args.positional.size() < skip) return rt.Fail("Missing parameter for attribute name");
  const AttributePath path(rt, by_attribute ? args.positional[0] : Value::Missing());
  Test test = nullptr;
  if (args.positional.size() > skip) {
    const std::string_view name = TextOr(rt, args.positional[skip], "");
    test = FindTest(name);
    if (!rt.Failed() && test == nullptr) return rt.Fail("No test named '{}'.", name);
  }
  std::vector<Value> items;
  for (Value& item : ItemsOf(rt, input)) {
    if (rt.Failed() || !rt.budget().Step(1 + ArgumentSteps(args))) return Value();
    const Value subject = path.Get(rt, item);
    bool chosen = Truth(subject);
    if (test != nullptr) {
      CallArgs rest;
      rest.positional.assign(args.positional.begin() + static_cast<ptrdiff_t>(skip) + 1,
                             args.positional.end());
      rest.named = args.named;
      chosen = test(rt, subject, rest);
    }
    if (chosen == wanted) items.push_back(std::move(item));
  }
  return rt.List(std::move(items), Type::kGenerator);
}

Value Batch(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [linecount, fill] = Bind(rt, "batch", args, {"linecount", "fill_with"}, 1);
  const int64_t size = IntOr(rt, linecount, 1);
  std::vector<Value> batches, batch;
  const auto flush = [&] { batches.push_back(rt.List(std::exchange(batch, {}))); };
  for (Value& item : ItemsOf(rt, input)) {
    if (static_cast<int64_t>(batch.size()) == size) flush();
    if (rt.Failed()) return Value();
    batch.push_back(std::move(item));
  }
  if (!batch.empty()) {
    if (!fill.is_missing() && !fill.is_none()) {
      while (static_cast<int64_t>(batch.size()) < size) {
        if (!rt.budget().Step()) return Value();
        batch.push_back(fill);
      }
    }
    flush();
  }
  return rt.List(std::move(batches), Type::kGenerator);
}

Value Slice(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [slices, fill] = Bind(rt, "slice", args, {"slices", "fill_with"}, 1);
  const int64_t count = IntOr(rt, slices, 1);
  if (rt.Failed()) return Value();
  if (count == 0) return rt.Fail("division by zero");
  const std::vector<Value> items = ItemsOf(rt, input);
  const auto length = static_cast<int64_t>(items.size());
  std::vector<Value> out;
  auto next = items.begin();
  for (int64_t i = 0; i < count; ++i) {
    if (!rt.budget().Step()) return Value();
    const bool longer = i < length % count;
    const auto end = next + length / count + (longer ? 1 : 0);
    std::vector<Value> slice(next, end);
    next = end;
    if (!longer && !fill.is_missing() && !fill.is_none()) slice.push_back(fill);
    out.push_back(rt.List(std::move(slice)));
    if (rt.Failed()) return Value();
  }
  return rt.List(std::move(out), Type::kGenerator);
}

}  // namespace

std::span<const Named<Filter>> ListFilters() {
  static constexpr Named<Filter> kFilters[] = {
      {"attr", Attr},
      {"batch", Batch},
      {"count", LengthFilter},
      {"d", Default},
      {"default", Default},
      {"dictsort", DictSort},
      {"first", First},
      {"groupby", GroupBy},
      {"items", Items},
      {"join", Join},
      {"last", Last},
      {"length", LengthFilter},
      {"list", ToList},
      {"map", Map},
      {"max", Extreme<true>},
      {"min", Extreme<false>},
      {"reject", Choose<false, false>},
      {"rejectattr", Choose<false, true>},
      {"reverse", Reverse},
      {"select", Choose<true, false>},
      {"selectattr", Choose<true, true>},
      {"slice", Slice},
      {"sort", Sort},
      {"sum", Sum},
      {"unique", Unique},
  };
  return kFilters;
}

Filter FindFilter(std::string_view name) {
  const Filter filter = FindNamed(TextFilters(), name);
  return filter != nullptr ? filter : FindNamed(ListFilters(), name);
}

}  // namespace tokamak::jinja
