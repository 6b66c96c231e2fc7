// The functions that every template can call.
#include <ctime>

#include "chat/jinja/arguments.h"

namespace tokamak::jinja {
namespace {

Value Range(Runtime& rt, CallArgs& args) {
  const auto [first, second, third] = Bind(rt, "range", args, {"start", "stop", "step"}, 1);
  const int64_t a = IntOr(rt, first, 0), b = IntOr(rt, second, 0), step = IntOr(rt, third, 1);
  if (rt.Failed()) return Value();
  return second.is_missing() ? MakeRange(rt, 0, a, 1) : MakeRange(rt, a, b, step);
}

// The entries of dict(...) and namespace(...): a mapping or pairs, then named arguments.
bool Entries(Runtime& rt, const CallArgs& args, DictObject& out) {
  if (args.positional.size() > 1) {
    rt.Fail("expected at most 1 argument, got {}", args.positional.size());
    return false;
  }
  if (!args.positional.empty()) {
    const Value& given = args.positional[0];
    if (given.is_dict()) {
      for (const auto& [key, value] : given.dict().entries) {
        if (!rt.budget().Step()) return false;
        out.Set(key, value, &rt.budget());
      }
    } else {
      const Value items = Iterate(rt, given);
      if (rt.Failed()) return false;
      for (const Value& item : items.items()) {
        const Value pair = Iterate(rt, item);
        if (rt.Failed()) return false;
        if (pair.items().size() != 2 || !Hashable(pair.items()[0])) {
          rt.Fail("a dictionary is made of pairs");
          return false;
        }
        if (!rt.budget().Step()) return false;
        out.Set(pair.items()[0], pair.items()[1], &rt.budget());
      }
    }
    if (!rt.budget().StepBytes(out.entries.size() * 2 * sizeof(Value))) return false;
  }
  for (const auto& [name, value] : args.named) out.Set(rt.String(name), value, &rt.budget());
  return !rt.Failed();
}

Value Dict(Runtime& rt, CallArgs& args) {
  auto dict = std::make_unique<DictObject>();
  if (!Entries(rt, args, *dict)) return Value();
  return MakeDict(std::move(dict), &rt.budget());
}

Value Namespace(Runtime& rt, CallArgs& args) {
  DictObject entries;
  if (!Entries(rt, args, entries)) return Value();
  auto attributes = std::make_unique<NamespaceObject>();
  for (const auto& [key, value] : entries.entries) {
    if (!key.is_string() || key.text().starts_with('_')) {
      return rt.Fail("names in a namespace must not begin with an underscore");
    }
    if (!rt.budget().Charge(key.text().size())) return Value();  // until the end
    attributes->attributes.emplace_back(key.text(), value);
  }
  return rt.KeepNamespace(std::move(attributes));
}

Value RaiseException(Runtime& rt, CallArgs& args) {
  const auto [message] = Bind(rt, "raise_exception", args, {"message"}, 1);
  if (rt.Failed()) return Value();
  const Value text = ToStr(rt, message);
  return rt.Failed() ? Value() : rt.Raise(std::string(text.text()));
}

Value StrftimeNow(Runtime& rt, CallArgs& args) {
  const auto [format_value] = Bind(rt, "strftime_now", args, {"format"}, 1);
  const std::string format(TextOr(rt, format_value, ""));
  if (rt.Failed() || format.empty()) return format_value;
  if (format.size() > 1024) return rt.Fail("strftime_now: the format has more than 1024 bytes");
  if (!rt.budget().StepBytes((format.size() + 1) * 64)) return Value();
  std::string out(format.size() * 64 + 64, '\0');
  const size_t size = std::strftime(out.data(), out.size(), format.c_str(), &rt.now());
  out.resize(size);
  return rt.String(std::move(out));
}

}  // namespace

std::span<const Named<GlobalFunction>> Globals() {
  static constexpr Named<GlobalFunction> kGlobals[] = {
      {"dict", Dict},   {"namespace", Namespace},      {"raise_exception", RaiseException},
      {"range", Range}, {"strftime_now", StrftimeNow},
  };
  return kGlobals;
}

GlobalFunction FindGlobal(std::string_view name) { return FindNamed(Globals(), name); }

}  // namespace tokamak::jinja
